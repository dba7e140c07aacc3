"""What the demo asks for: one table of kinds of jobs, and the forty jobs made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from holdfast.cli.demonstration.pace import Pace
from holdfast.core.canon import canonical, decode

COUNT: Final = 40
REQUESTER: Final = "you"
MAX_FEE: Final = 100


class Kind(NamedTuple):
    """A kind of job: what is asked, what must come out, and how that reads in a few letters."""

    name: str
    model: str
    spec: Callable[[int, Pace], dict[str, Any]]
    lasts_ms: Callable[[int, Pace], int]
    output: Callable[[int, Pace], bytes]
    reads: Callable[[bytes], str]


def _echo(number: int, _: Pace) -> dict[str, Any]:
    return {"model": "echo", "prompt": f"hi {number}"}


def _nap(number: int, pace: Pace) -> dict[str, Any]:
    return {"model": "sleep", "prompt": f"nap {number}", "params": {"ms": _nap_ms(number, pace)}}


def _nap_ms(number: int, pace: Pace) -> int:
    """Some longer, some shorter, so that not everything ends at once."""
    return pace.nap_ms * (80 + 10 * (number % 5)) // 100


ECHO: Final = Kind(
    "echo", "echo", _echo, lambda _, __: 0, lambda number, _: canonical(f"hi {number}"), lambda raw: str(decode(raw))
)
NAP: Final = Kind(
    "nap", "sleep", _nap, _nap_ms, lambda number, _: canonical(f"nap {number}"), lambda raw: str(decode(raw))
)
KINDS: Final = (NAP, ECHO, NAP)
"""In turns: job 1 is of the first kind, job 2 of the second … A further kind is an entry above and one here."""
MODELS: Final = tuple(sorted({kind.model for kind in KINDS}))
"""What the agents offer."""


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
    payload = {"kind": "AI", "spec": kind.spec(number, pace)}
    return Job(number, kind, payload, kind.lasts_ms(number, pace), kind.output(number, pace))
