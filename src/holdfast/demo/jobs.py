"""The demo's jobs: a table of templates, and the forty jobs made from it; a user's own command runs some of them."""

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
SHOUT_RUNTIME: Final = "shout"


class JobTemplate(NamedTuple):
    """A kind of job: its payload, its duration, its expected output, a short form of the output, and its input."""

    name: str
    build_payload: Callable[[int, Pace], dict[str, Any]]
    duration_ms: Callable[[int, Pace], int]
    expected_output: Callable[[Any, bytes | None], bytes]
    summarize: Callable[[bytes], str]
    build_input: Callable[[int], bytes | None] = lambda _: None


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


def _shout(_: int, __: Pace) -> dict[str, Any]:
    """A program that knows nothing of Holdfast reads its input and writes its output."""
    return {"kind": "COMPUTE", "spec": {"runtime": SHOUT_RUNTIME}}


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


def _from_payload(work: Callable[[Any], bytes]) -> Callable[[Any, bytes | None], bytes]:
    """Built-in work: its payload says all."""
    return lambda payload, _: work(payload)


NAP: Final = JobTemplate("nap", _nap, _nap_ms, _from_payload(echo), bytes.decode)
DIGIT: Final = JobTemplate("digit", _digit, _no_duration, _from_payload(recognise), _read_digit)
GHZ: Final = JobTemplate("GHZ", _ghz, _no_duration, _from_payload(run_circuit), _read_ghz)
ESSAY: Final = JobTemplate("essay", _essay, _nap_ms, _from_payload(echo), lambda raw: f"{len(raw) // 1000} kB")
SHOUT: Final = JobTemplate(
    name="shout",
    build_payload=_shout,
    duration_ms=_no_duration,
    expected_output=lambda _, given: (given or b"").upper(),
    summarize=bytes.decode,
    build_input=lambda number: f"hey {number}".encode(),
)
TEMPLATES: Final = (NAP, DIGIT, NAP, NAP, SHOUT, NAP, NAP, GHZ)
"""In turns: job 1 is made from the first, job 2 from the second … A further kind is an entry above and one here. Most
of them take time, so that there is always an agent to kill in the middle of one."""
LARGE: Final = 7
"""This job has a large output."""
MODELS: Final = ("digits", "sleep")
"""What comes with Holdfast and the agents offer, besides circuits."""
OWN_COMMAND: Final = f"{SHOUT_RUNTIME}=tr a-z A-Z"
"""What they offer of their own: any program that reads and writes."""


class DemoJob(NamedTuple):
    """One of the forty jobs."""

    number: int
    kind: JobTemplate
    payload: dict[str, Any]
    duration_ms: int
    output: bytes
    """What an honest provider returns."""
    input: bytes | None

    @property
    def key(self) -> str:
        """The idempotency key: a retry with it is the same job (JOB-002)."""
        return f"demo job {self.number}"


def all_jobs(pace: Pace) -> list[DemoJob]:
    return [_job(number, _template(number), pace) for number in range(1, COUNT + 1)]


def _template(number: int) -> JobTemplate:
    return ESSAY if number == LARGE else TEMPLATES[(number - 1) % len(TEMPLATES)]


def _job(number: int, kind: JobTemplate, pace: Pace) -> DemoJob:
    payload, given = kind.build_payload(number, pace), kind.build_input(number)
    return DemoJob(
        number=number,
        kind=kind,
        payload=payload,
        duration_ms=kind.duration_ms(number, pace),
        output=kind.expected_output(read_work_payload(canonical(payload)), given),
        input=given,
    )
