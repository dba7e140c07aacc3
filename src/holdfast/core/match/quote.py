"""A quote (JOB-008): who could run this now, at which place of the queue it stands, and if nobody can, why not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.core import priority
from holdfast.core.canon import H
from holdfast.core.event import PAYLOAD_TAG
from holdfast.core.job.record import Job
from holdfast.core.match.decide import Seeded
from holdfast.core.match.fit import lease_cap, why_not
from holdfast.core.provider.record import Provider
from holdfast.core.queue.acts import Enqueue
from holdfast.core.queue.line import place_of
from holdfast.core.values import EventNo, ProviderId, TaskId

NAMED_MAX: Final = 100
"""How many providers a quote names on either side; it counts them all."""
_LAST: Final = TaskId(b"\xff" * 32)
"""The name of a job that is not there yet: of equals it stands last."""


class Could(msgspec.Struct, frozen=True):
    """Somebody who could run it now."""

    provider_id: ProviderId
    name: str
    region: str
    price: int
    cost: int
    """What it would charge for all units."""
    free_slots: int


class CouldNot(msgspec.Struct, frozen=True):
    """Somebody who could not, and the filter that refuses."""

    provider_id: ProviderId
    name: str
    why_not: str


class Quote(msgspec.Struct):
    """What a requester is told; it binds nobody."""

    position: int
    """How many jobs stand before it."""
    waiting: int
    """How many jobs are ready."""
    could: int = 0
    could_not: int = 0
    providers: list[Could] = []
    """Some of those that could, the cheapest first."""
    refused: list[CouldNot] = []
    """Some of those that could not."""

    def ask(self, state: Seeded, providers: Iterable[Provider], job: Job, now_ms: int) -> None:
        """Ask some more providers."""
        for each in providers:
            no = why_not(state, each, job, now_ms)
            if no is None:
                self.could += 1
                told = (each.id, each.name, each.region, each.price, each.price * job.units)
                self.providers.append(Could(*told, lease_cap(each, state.policy) - each.leases))
            else:
                self.could_not += 1
                if len(self.refused) < NAMED_MAX:
                    self.refused.append(CouldNot(each.id, each.name, no))
        self.providers = sorted(self.providers, key=lambda could: (could.cost, could.provider_id))[:NAMED_MAX]


def quote(state: Seeded, job: Job) -> Quote:
    """Where a job stands or would stand; nobody was asked yet."""
    line = state.queue.line
    waiting = sum(len(group.places) for group in line.groups.values())
    return Quote(line.before(place_of(job)), waiting)


def as_if(state: Seeded, command: Enqueue, now_ms: int) -> Job:
    """The job that this command would make."""
    size, digest = len(command.payload), H(PAYLOAD_TAG, command.payload)
    rank = priority.key(command.max_fee, size, command.tier, now_ms, state.policy.priority)
    return Job(
        EventNo(0),
        _LAST,
        command.kind,
        command.caller,
        command.tier,
        state.open_height,
        command.tx_hash,
        command.nonce,
        command.request_hash,
        size,
        digest,
        command.max_fee,
        command.units,
        rank,
        now_ms,
        now_ms,
        command.requirements,
        command.proof,
    )
