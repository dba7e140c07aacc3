"""What the baseline with the same promises decides, apart from where it is stored: numbers, money, leaves, refusals."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from bench.queue.baselines import promises
from bench.queue.baselines.contract import FEE, PAID, PROVIDERS, SPEC, T_MS, WAITS_MS
from bench.queue.baselines.promises import CLAIM_BYTES, EventRow, JobRef, OpenBlock, Refusal


class Admitted(NamedTuple):
    """A chunk of requests, decided one by one."""

    jobs: list[tuple[object, ...]]
    events: list[EventRow]
    refusals: list[Refusal]
    unused: list[bytes]
    """Claims of requests that were refused for another reason."""


class Assigned(NamedTuple):
    """Jobs that got a lease."""

    jobs: list[JobRef]
    leases: list[tuple[object, ...]]
    events: list[EventRow]


class Completed(NamedTuple):
    """Jobs that ended with a result: what their rows get."""

    ends: list[tuple[int, bytes, int, int]]
    events: list[EventRow]


class PromisedLedger:
    """The one writer's memory. All of it is loaded again from rows and events after a restart or a failed chunk."""

    def __init__(
        self, last_event: int, balance: int, block: tuple[int, bytes, int] | None, since: Iterable[EventRow]
    ) -> None:
        self._last, self._balance, self.open = last_event, balance, OpenBlock()
        if block is not None:
            self.open.height, self.open.parent, self.open.first_event = block
        for event in since:
            self.open.add(event)

    def ids_of(self, txs: Sequence[bytes]) -> list[bytes]:
        return [promises.task_id(self.open.height, tx) for tx in txs]

    def admit(self, txs: Sequence[bytes], ids: Sequence[bytes], is_new: set[bytes], at_ms: int) -> Admitted:
        """Each request is refused on its own: for an id that was used before, or for want of money."""
        made = Admitted([], [], [], [])
        for at, id_ in enumerate(ids):
            claim = id_[:CLAIM_BYTES]
            if claim not in is_new:
                made.refusals.append(Refusal(at, "the id was used before"))
                continue
            is_new.discard(claim)  # a second one in the same chunk is a repeat
            if self._balance < FEE:
                made.refusals.append(Refusal(at, "not enough money"))
                made.unused.append(claim)
                continue
            self._balance -= FEE
            number = self._next()
            made.jobs.append(_job_row(number, id_, at_ms))
            made.events.append(promises.admitted(number, at_ms, id_, txs[at]))
            self.open.add_admission(number, id_)
        return made

    def assign(self, jobs: Sequence[JobRef], granted: Collection[int], at_ms: int) -> Assigned:
        made = Assigned([], [], [])
        for at, job in enumerate(each for each in jobs if each.number in granted):
            number, provider = self._next(), PROVIDERS[at % len(PROVIDERS)]
            leased = JobRef(job.number, job.id, number, promises.lease_id(job.id, 0))
            made.jobs.append(leased)
            made.leases.append((number, job.number, leased.lease_id, provider, at_ms, at_ms + T_MS, "ACTIVE", None))
            made.events.append(promises.assigned(number, at_ms, leased, provider))
        return made

    def ack(self, jobs: Sequence[JobRef], known: Collection[int], at_ms: int) -> list[EventRow]:
        return [promises.acked(self._next(), at_ms, job) for job in jobs if job.lease in known]

    def complete(self, proven: Sequence[tuple[JobRef, bytes]], closed: Collection[int], at_ms: int) -> Completed:
        """Jobs with their nullifiers, and the rows of those whose lease was live."""
        made = Completed([], [])
        for job, used in proven:
            if job.number not in closed:
                continue
            number = self._next()
            made.ends.append((job.number, promises.RESULT, PAID, at_ms))
            made.events.append(promises.completed(number, at_ms, job, used))
            self.open.add_result(number, job.id, used)
        return made

    def seal(self, at_ms: int) -> tuple[object, ...]:
        return self.open.seal(self._last, at_ms)

    @property
    def next_event(self) -> int:
        return self._last + 1

    def _next(self) -> int:
        self._last += 1
        return self._last


def nullifiers(jobs: Sequence[JobRef]) -> list[bytes]:
    return [promises.nullifier(job.id, job.lease_id, promises.RESULT) for job in jobs]


def claims_of(hashes: Sequence[bytes]) -> list[bytes]:
    """In sorted order, so that neighbours share pages; each once."""
    return sorted({each[:CLAIM_BYTES] for each in hashes})


def with_claim(jobs: Sequence[JobRef], used: Sequence[bytes], is_new: Collection[bytes]) -> list[tuple[JobRef, bytes]]:
    return [pair for pair in zip(jobs, used, strict=True) if pair[1][:CLAIM_BYTES] in is_new]


def _job_row(number: int, id_: bytes, at_ms: int) -> tuple[object, ...]:
    waiting = (number, id_, "AI", promises.CALLER, "QUEUED", -at_ms, at_ms, at_ms + WAITS_MS, FEE, 0, SPEC)
    return (*waiting, None, None, None)
