"""A job that counts when several providers say the same (LEA-009): the names of its replicas, and what they said."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from holdfast.core.canon import H
from holdfast.core.values import AccountId, Digest, EventNo, LeaseId, ProviderId, TaskId

REPLICA_TAG: Final = "holdfast.replica.v1"
QUORUM: Final = "quorum"
"""The method by which such a job is proved (PRF-002); each replica has one of its own."""
REPLICAS_MAX: Final = 16


def replica_id(task_id: TaskId, index: int) -> TaskId:
    """LEA-009: anybody can name the replicas of a job."""
    return TaskId(H(REPLICA_TAG, task_id, index))


@lru_cache(maxsize=4_096)
def replica_ids(task_id: TaskId, count: int) -> tuple[TaskId, ...]:
    return tuple(replica_id(task_id, index) for index in range(count))


class Vote(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one replica came to, after the verdict that its proof is good."""

    event: EventNo
    index: int
    lease_id: LeaseId
    provider_id: ProviderId
    digest: Digest
    size: int
    price: int
    """Of the provider, for a unit of work, when its lease was given."""


class Payment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one of those that agree gets."""

    index: int
    account: AccountId
    amount: int


class Quorum(msgspec.Struct, array_like=True):
    """How far a job with replicas has come, while it lives or a reorg could still move its money."""

    task_id: TaskId
    n: int
    """So many must agree"""
    m: int
    """of so many."""
    votes: list[Vote] = []
    """In the order in which they came."""
    paid: tuple[Payment, ...] = ()
    """Once they agree: who is paid, by index."""


def share_of(max_fee: int, n: int, units: int, price: int) -> int:
    """ESC-001: each that agrees is paid for its work, and no more than its part of the fee: together never above it."""
    return min(max_fee // n, units * price)
