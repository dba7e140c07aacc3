"""`traps`: runs whose answers are known came out right, as many of them as the job asked for (PRF-002, QUANTUM).

The output is the canonical map `{"shots": [bits, …]}`, one text of `width` bits for each run. At the trapped runs
(`core/proof/traps`) the answer is certain; real hardware errs now and then, so a share of them must be right.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from holdfast.core.canon import NotCanonical, decode
from holdfast.core.job.spec import TRAPPED_SHOTS_MAX, QuantumSpec
from holdfast.core.proof.finding import Case, Finding, Method, Where
from holdfast.core.proof.traps import PPM, Plan, plan
from holdfast.verifiers.attested import Verify, is_signed

RIGHT_PPM = 900_000
"""This share of the traps must have the right answer."""


class Runs(msgspec.Struct, frozen=True):
    """What a provider hands in."""

    shots: Annotated[list[str], msgspec.Meta(max_length=TRAPPED_SHOTS_MAX)]


class Traps(msgspec.Struct, frozen=True):
    """It can be pickled, with the function that checks signatures."""

    verify: Verify
    right_ppm: int = RIGHT_PPM

    def __call__(self, case: Case) -> Finding:
        if not is_signed(self.verify, case):
            return Finding(False, "the signature is not the leased provider's")
        spec = _spec(case.payload)
        if spec is None or spec.trap_ppm == 0:  # the requester's fault, and no proof could be any better
            raise LookupError("the job asks for no traps: there is nothing to prove by them")
        if spec.shots > TRAPPED_SHOTS_MAX:
            raise LookupError(f"{spec.shots} runs are more than the {TRAPPED_SHOTS_MAX} that are looked at")
        try:
            runs = msgspec.convert(decode(case.output or b""), Runs).shots
        except (NotCanonical, msgspec.ValidationError) as fault:
            return Finding(False, f"the output is not a list of runs: {fault}")
        return self._judge(runs, plan(case.payload, spec.shots, spec.width, spec.trap_ppm))

    def _judge(self, runs: list[str], planned: Plan) -> Finding:
        if len(runs) != planned.shots:
            return Finding(False, f"{len(runs)} runs were handed in, {planned.shots} asked for")
        if any(len(bits) != planned.width or not set(bits) <= {"0", "1"} for bits in runs):
            return Finding(False, f"every run is a text of {planned.width} bits")
        traps = len(planned.answers)
        right = sum(runs[at] == answer for at, answer in planned.answers.items())
        share_ppm = right * PPM // traps
        says = f"{right} of {traps} traps have the right answer: {share_ppm} ppm, {self.right_ppm} are needed"
        return Finding(share_ppm >= self.right_ppm, says)


def _spec(payload: bytes) -> QuantumSpec | None:
    try:
        asked: Any = decode(payload)
        return msgspec.convert(asked["spec"], QuantumSpec)
    except (NotCanonical, msgspec.ValidationError, KeyError, TypeError):
        return None


def traps(verify: Verify, right_ppm: int = RIGHT_PPM) -> Method:
    """It reads as many runs as a job has, so it runs in a process."""
    says = "Runs with known answers came out right."
    return Method(says, Traps(verify, right_ppm), Where.PROCESS, needs_payload=True, needs_output=True)
