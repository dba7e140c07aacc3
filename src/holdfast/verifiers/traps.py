"""`traps`: runs whose answers are known in advance must be right, in the number the job requires (PRF-002, QUANTUM).

The output is the canonical map `{"shots": [bits, …]}`, one text of `width` bits for each run. The answers of trapped
runs (`workloads/traps`) are certain. Real hardware makes errors, so that only a share of them must be right.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from holdfast.core.base.canonical import NotCanonical, decode
from holdfast.core.base.values import PPM, VerifySignature
from holdfast.core.job.spec import TRAPPED_SHOTS_MAX, QuantumSpec
from holdfast.ports.verifier import Isolation, ProofMethod, VerificationInput, VerificationResult
from holdfast.verifiers.attested import is_signed
from holdfast.workloads.traps import TrapPlan, plan_traps

RIGHT_PPM = 900_000
"""The share of the traps that must have the right answer."""


class CircuitOutput(msgspec.Struct, frozen=True):
    """What a provider submits."""

    shots: Annotated[list[str], msgspec.Meta(max_length=TRAPPED_SHOTS_MAX)]


class Traps(msgspec.Struct, frozen=True):
    """The method as a value that can be pickled, with the function that verifies signatures."""

    verify: VerifySignature
    right_ppm: int = RIGHT_PPM

    def __call__(self, case: VerificationInput) -> VerificationResult:
        if not is_signed(self.verify, case):
            return VerificationResult(False, "the signature is not the leased provider's")
        spec = _spec(case.payload)
        if spec is None or spec.trap_ppm == 0:  # the requester's fault: no proof could be better
            raise LookupError("the job has no traps: they cannot prove anything")
        if spec.shots > TRAPPED_SHOTS_MAX:
            raise LookupError(f"{spec.shots} runs, at most {TRAPPED_SHOTS_MAX} are checked")
        try:
            runs = msgspec.convert(decode(case.output or b""), CircuitOutput).shots
        except (NotCanonical, msgspec.ValidationError) as fault:
            return VerificationResult(False, f"the output is not a list of runs: {fault}")
        return self._check_traps(runs, plan_traps(case.payload, spec.shots, spec.width, spec.trap_ppm))

    def _check_traps(self, runs: list[str], planned: TrapPlan) -> VerificationResult:
        if len(runs) != planned.shots:
            return VerificationResult(False, f"{len(runs)} runs were submitted, {planned.shots} are required")
        if any(len(bits) != planned.width or not set(bits) <= {"0", "1"} for bits in runs):
            return VerificationResult(False, f"every run is a text of {planned.width} bits")
        traps = len(planned.answers)
        right = sum(runs[shot] == answer for shot, answer in planned.answers.items())
        share_ppm = right * PPM // traps
        reason = f"{right} of {traps} traps have the right answer: {share_ppm} ppm, {self.right_ppm} are needed"
        return VerificationResult(share_ppm >= self.right_ppm, reason)


def _spec(payload: bytes) -> QuantumSpec | None:
    try:
        fields: Any = decode(payload)
        return msgspec.convert(fields["spec"], QuantumSpec)
    except (NotCanonical, msgspec.ValidationError, KeyError, TypeError):
        return None


def traps_method(verify: VerifySignature, right_ppm: int = RIGHT_PPM) -> ProofMethod:
    """A job may have many runs, so it runs in a process."""
    summary = "Runs with known answers are right."
    return ProofMethod(summary, Traps(verify, right_ppm), Isolation.PROCESS, needs_payload=True, needs_output=True)
