"""`recompute`: deterministic work is computed again on a sample and must give the same bytes (PRF-002).

Functions that compute work again are registered by kind and name. The work that comes with Holdfast is built in;
plug-ins are entry points of the group `holdfast.recomputers`, named `AI:model`, `COMPUTE:runtime` or `QUANTUM:circuit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from holdfast.core.base.canonical import H
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import VerifySignature
from holdfast.core.job.spec import WorkPayload, read_work_payload, work_name
from holdfast.core.proof.envelope import read_body
from holdfast.core.result.ids import RESULT
from holdfast.ports.verifier import Isolation, ProofMethod, VerificationInput, VerificationResult
from holdfast.verifiers.attested import is_signed
from holdfast.workloads.circuit import run_circuit
from holdfast.workloads.digits import recognise
from holdfast.workloads.echo import echo

SAMPLE_TAG: Final = "holdfast.sample.v1"
ALL_PPM: Final = 1_000_000
"""By default all results are computed again."""
Recomputer = Callable[[WorkPayload], bytes]
BUILT_IN: Final[Mapping[str, Recomputer]] = {
    "AI:digits": recognise,
    "AI:echo": echo,
    "AI:sleep": echo,
    "QUANTUM:circuit": run_circuit,
}


class Recompute(msgspec.Struct, frozen=True):
    """The method as a value that can be pickled, with the functions that compute work again."""

    verify: VerifySignature
    recomputers: Mapping[str, Recomputer]
    sample_ppm: int = ALL_PPM

    def __call__(self, case: VerificationInput) -> VerificationResult:
        if not is_signed(self.verify, case):
            return VerificationResult(False, "the signature is not the leased provider's")
        if not is_sampled(case, self.sample_ppm):
            return VerificationResult(True, "signed by the leased provider; not in the sample that is computed again")
        body = read_body(case.envelope.body)
        if isinstance(body, Refused):
            return VerificationResult(False, body.message)
        payload = read_work_payload(case.payload)
        name = f"{payload.kind.value}:{work_name(payload.spec)}"
        recomputer = self.recomputers.get(name)
        if recomputer is None:  # not the provider's fault: this node lacks the function
            raise LookupError(f"this node cannot compute {name} again")
        if RESULT.matching_version(body.output_digest, recomputer(payload)) is None:
            return VerificationResult(False, "computed again it gives other bytes")
        return VerificationResult(True, "computed again it gives the same bytes")


def is_sampled(case: VerificationInput, sample_ppm: int) -> bool:
    """Whether this result is computed again: drawn by a seed that was unknown when the result was submitted."""
    digest = H(SAMPLE_TAG, case.sampling_seed, case.envelope.body)
    return int.from_bytes(digest[:8], "big") % ALL_PPM < sample_ppm


def recompute_method(
    verify: VerifySignature, plugins: Mapping[str, Recomputer] | None = None, sample_ppm: int = ALL_PPM
) -> ProofMethod:
    """The work may be of any size, so it runs in a process."""
    method = Recompute(verify, {**BUILT_IN, **(plugins or {})}, sample_ppm)
    return ProofMethod(
        "Computed again on a sample, it gives the same bytes.", method, Isolation.PROCESS, needs_payload=True
    )
