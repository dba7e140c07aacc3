"""`recompute`: deterministic work is done again on a sample, and gives the same bytes (PRF-002).

Whoever can do a kind of work again is registered by kind and name: built in is the work that comes with Holdfast, other
comes as entry points of the group `holdfast.recomputers`, named `AI:model` or `QUANTUM:circuit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from holdfast.core.canon import H
from holdfast.core.job.spec import Ordered, ordered
from holdfast.core.proof.envelope import read_body
from holdfast.core.proof.finding import Case, Finding, Method, Where
from holdfast.core.refusal import Refused
from holdfast.core.result.ids import RESULT
from holdfast.core.values import Kind
from holdfast.verifiers.attested import Verify, is_signed
from holdfast.workloads.circuit import circuit
from holdfast.workloads.digits import recognise
from holdfast.workloads.echo import echo

SAMPLE_TAG: Final = "holdfast.sample.v1"
ALL_PPM: Final = 1_000_000
"""All results are computed again unless somebody says otherwise."""
Again = Callable[[Ordered], bytes]
BUILT_IN: Final[Mapping[str, Again]] = {
    "AI:digits": recognise,
    "AI:echo": echo,
    "AI:sleep": echo,
    "QUANTUM:circuit": circuit,
}


class Recompute(msgspec.Struct, frozen=True):
    """It can be pickled, with the functions that do the work again."""

    verify: Verify
    again: Mapping[str, Again]
    sample_ppm: int = ALL_PPM

    def __call__(self, case: Case) -> Finding:
        if not is_signed(self.verify, case):
            return Finding(False, "the signature is not the leased provider's")
        if not is_drawn(case, self.sample_ppm):
            return Finding(True, "signed by the leased provider; not in the sample that is computed again")
        body = read_body(case.envelope.body)
        if isinstance(body, Refused):
            return Finding(False, body.says)
        payload = ordered(case.payload)
        name = f"{payload.kind.value}:{_name(payload)}"
        work = self.again.get(name)
        if work is None:  # not the provider's fault: whoever runs the node lacks it
            raise LookupError(f"nobody here can compute {name} again")
        if RESULT.recognise(body.output_digest, work(payload)) is None:
            return Finding(False, "computed again it gives other bytes")
        return Finding(True, "computed again it gives the same bytes")


def is_drawn(case: Case, sample_ppm: int) -> bool:
    """Whether this one is computed again: by chance that nobody knew when it was handed in."""
    word = H(SAMPLE_TAG, case.chance, case.envelope.body)
    return int.from_bytes(word[:8], "big") % ALL_PPM < sample_ppm


def _name(payload: Ordered) -> str:
    return str(payload.spec.get("model")) if payload.kind is Kind.AI else "circuit"


def recompute(verify: Verify, more: Mapping[str, Again] | None = None, sample_ppm: int = ALL_PPM) -> Method:
    """It does work of any size, so it runs in a process."""
    method = Recompute(verify, {**BUILT_IN, **(more or {})}, sample_ppm)
    return Method("Done again on a sample, it gives the same.", method, Where.PROCESS, needs_payload=True)
