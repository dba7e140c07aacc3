"""The demo's jobs: a table of templates, and the forty jobs made from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from holdfast.core.base.canonical import canonical, decode
from holdfast.core.job.spec import read_work_payload
from holdfast.demo.pace import Pace
from holdfast.workloads.circuit import run_circuit
from holdfast.workloads.digits import INK, PAPER, glyph, recognise
from holdfast.workloads.echo import echo

COUNT: Final = 40
REQUESTER: Final = "you"
MAX_FEE: Final = 100
SHOTS: Final = 12
ESSAY_BYTES: Final = 160_000


class JobTemplate(NamedTuple):
    """A kind of job: its payload, its duration, its expected output, and a short form of the output."""

    name: str
    build_payload: Callable[[int, Pace], dict[str, Any]]
    duration_ms: Callable[[int, Pace], int]
    expected_output: Callable[[Any], bytes]
    summarize: Callable[[bytes], str]


def _nap(number: int, pace: Pace) -> dict[str, Any]:
    spec = {"model": "sleep", "prompt": f"nap {number}", "params": {"ms": _nap_ms(number, pace)}}
    return {"kind": "AI", "spec": spec}


def _nap_ms(number: int, pace: Pace) -> int:
    """Some longer, some shorter, so that jobs do not all end at once."""
    return pace.nap_ms * (80 + 10 * (number % 5)) // 100


def _digit(number: int, _: Pace) -> dict[str, Any]:
    """A digit with two wrong pixels, which is recognised all the same. The node computes it again as a check."""
    pixels = list(glyph(number // len(TEMPLATES)))
    for at in (7 * number % 64, 11 * number % 64):
        pixels[at] = PAPER if pixels[at] == INK else INK
    return {"kind": "AI", "spec": {"model": "digits", "prompt": "".join(pixels)}, "proof": "recompute"}


def _ghz(number: int, _: Pace) -> dict[str, Any]:
    """Entangled qubits that all measure alike; a quarter of the shots are traps."""
    width = 3 + number % 3
    chain = "".join(f"cx q[{at}], q[{at + 1}];\n" for at in range(width - 1))
    text = f"OPENQASM 3.0;\nqubit[{width}] q;\nbit[{width}] c;\nh q[0];\n{chain}c = measure q;\n"
    spec = {"circuit": text, "shots": SHOTS, "width": width, "depth": width + 1, "trap_ppm": 250_000}
    return {"kind": "QUANTUM", "spec": spec, "proof": "traps"}


def _essay(number: int, pace: Pace) -> dict[str, Any]:
    """A nap with a long output: more than one blob holds."""
    line = f"line of a long output of job {number}\n"
    spec = {"model": "sleep", "prompt": line * (ESSAY_BYTES // len(line)), "params": {"ms": _nap_ms(number, pace)}}
    return {"kind": "AI", "spec": spec}


def _no_duration(_: int, __: Pace) -> int:
    return 0


def _read_digit(raw: bytes) -> str:
    output: Any = decode(raw)
    return f"a {output['digit']}"


def _read_ghz(raw: bytes) -> str:
    """How many shots measured only 0, and how many only 1; most traps measure something else."""
    output: Any = decode(raw)
    counts = Counter("".join(sorted(set(shot))) for shot in output["shots"])
    return " ".join(f"{bit}×{counts[bit]}" for bit in "01")


NAP: Final = JobTemplate("nap", _nap, _nap_ms, echo, bytes.decode)
DIGIT: Final = JobTemplate("digit", _digit, _no_duration, recognise, _read_digit)
GHZ: Final = JobTemplate("GHZ", _ghz, _no_duration, run_circuit, _read_ghz)
ESSAY: Final = JobTemplate("essay", _essay, _nap_ms, echo, lambda raw: f"{len(raw) // 1000} kB")
TEMPLATES: Final = (NAP, DIGIT, NAP, NAP, GHZ, NAP)
"""In turns: job 1 is made from the first, job 2 from the second … A further kind is an entry above and one here. Most
of them take time, so that there is always an agent to kill in the middle of one."""
LARGE: Final = 7
"""This job has a large output."""
MODELS: Final = ("digits", "sleep")
"""What the agents offer, besides circuits."""


class DemoJob(NamedTuple):
    """One of the forty jobs."""

    number: int
    kind: JobTemplate
    payload: dict[str, Any]
    duration_ms: int
    output: bytes
    """What an honest provider returns."""

    @property
    def key(self) -> str:
        """The idempotency key: a retry with it is the same job (JOB-002)."""
        return f"demo job {self.number}"


def all_jobs(pace: Pace) -> list[DemoJob]:
    return [_job(number, _template(number), pace) for number in range(1, COUNT + 1)]


def _template(number: int) -> JobTemplate:
    return ESSAY if number == LARGE else TEMPLATES[(number - 1) % len(TEMPLATES)]


def _job(number: int, kind: JobTemplate, pace: Pace) -> DemoJob:
    payload = kind.build_payload(number, pace)
    return DemoJob(
        number,
        kind,
        payload,
        kind.duration_ms(number, pace),
        kind.expected_output(read_work_payload(canonical(payload))),
    )
