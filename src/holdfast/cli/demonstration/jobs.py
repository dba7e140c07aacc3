"""What the demo asks for: one table of kinds of jobs, and the forty jobs made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from holdfast.cli.demonstration.pace import Pace
from holdfast.core.canon import canonical, decode
from holdfast.core.job.spec import ordered
from holdfast.workloads.circuit import circuit
from holdfast.workloads.digits import INK, PAPER, glyph, recognise
from holdfast.workloads.echo import echo

COUNT: Final = 40
REQUESTER: Final = "you"
MAX_FEE: Final = 100
SHOTS: Final = 12


class Kind(NamedTuple):
    """A kind of job: what is asked, what must come out, and how that reads in a few letters."""

    name: str
    asks: Callable[[int, Pace], dict[str, Any]]
    lasts_ms: Callable[[int, Pace], int]
    work: Callable[[Any], bytes]
    reads: Callable[[bytes], str]


def _nap(number: int, pace: Pace) -> dict[str, Any]:
    spec = {"model": "sleep", "prompt": f"nap {number}", "params": {"ms": _nap_ms(number, pace)}}
    return {"kind": "AI", "spec": spec}


def _nap_ms(number: int, pace: Pace) -> int:
    """Some longer, some shorter, so that not everything ends at once."""
    return pace.nap_ms * (80 + 10 * (number % 5)) // 100


def _digit(number: int, _: Pace) -> dict[str, Any]:
    """A digit with two points wrong, which is recognised all the same; whoever runs the node computes it again."""
    signs = list(glyph(number // len(KINDS)))
    for at in (7 * number % 64, 11 * number % 64):
        signs[at] = PAPER if signs[at] == INK else INK
    return {"kind": "AI", "spec": {"model": "digits", "prompt": "".join(signs)}, "proof": "recompute"}


def _ghz(number: int, _: Pace) -> dict[str, Any]:
    """Some qubits that all answer alike; a quarter of the runs are traps."""
    width = 3 + number % 3
    chain = "".join(f"cx q[{at}], q[{at + 1}];\n" for at in range(width - 1))
    text = f"OPENQASM 3.0;\nqubit[{width}] q;\nbit[{width}] c;\nh q[0];\n{chain}c = measure q;\n"
    spec = {"circuit": text, "shots": SHOTS, "width": width, "depth": width + 1, "trap_ppm": 250_000}
    return {"kind": "QUANTUM", "spec": spec, "proof": "traps"}


def _at_once(_: int, __: Pace) -> int:
    return 0


def _read_digit(raw: bytes) -> str:
    found: Any = decode(raw)
    return f"a {found['digit']}"


def _read_ghz(raw: bytes) -> str:
    """How many runs said 0 everywhere, and how many 1; most traps say something else."""
    found: Any = decode(raw)
    counts = Counter("".join(sorted(set(shot))) for shot in found["shots"])
    return " ".join(f"{bit}×{counts[bit]}" for bit in "01")


NAP: Final = Kind("nap", _nap, _nap_ms, echo, lambda raw: str(decode(raw)))
DIGIT: Final = Kind("digit", _digit, _at_once, recognise, _read_digit)
GHZ: Final = Kind("GHZ", _ghz, _at_once, circuit, _read_ghz)
KINDS: Final = (NAP, DIGIT, NAP, NAP, GHZ, NAP)
"""In turns: job 1 is of the first kind, job 2 of the second … A further kind is an entry above and one here. Most of
them last, so that there is always somebody to kill in the middle of one."""
MODELS: Final = ("digits", "sleep")
"""What the agents offer, besides circuits."""


class Job(NamedTuple):
    """One of the forty."""

    number: int
    kind: Kind
    payload: dict[str, Any]
    lasts_ms: int
    output: bytes
    """What an honest provider delivers."""

    @property
    def key(self) -> str:
        """Asked again under the same key, it is the same job (JOB-002)."""
        return f"demo job {self.number}"


def all_jobs(pace: Pace) -> list[Job]:
    return [_job(number, KINDS[(number - 1) % len(KINDS)], pace) for number in range(1, COUNT + 1)]


def _job(number: int, kind: Kind, pace: Pace) -> Job:
    payload = kind.asks(number, pace)
    return Job(number, kind, payload, kind.lasts_ms(number, pace), kind.work(ordered(canonical(payload))))
