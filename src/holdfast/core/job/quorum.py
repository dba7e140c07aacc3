"""A job that is completed when n of m providers return the same output (LEA-009): its replicas and their votes."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from holdfast.core.base.canonical import H
from holdfast.core.base.values import AccountId, Digest, EventNo, LeaseId, ProviderId, TaskId

REPLICA_TAG: Final = "holdfast.replica.v1"
QUORUM: Final = "quorum"
"""The proof method of such a job (PRF-002); each replica has its own method."""
REPLICAS_MAX: Final = 16


def replica_id(task_id: TaskId, index: int) -> TaskId:
    """LEA-009: the id of a replica follows from the id of its job."""
    return TaskId(H(REPLICA_TAG, task_id, index))


@lru_cache(maxsize=4_096)
def replica_ids(task_id: TaskId, count: int) -> tuple[TaskId, ...]:
    return tuple(replica_id(task_id, index) for index in range(count))


class Vote(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The output of one replica, after its proof was accepted."""

    event: EventNo
    index: int
    lease_id: LeaseId
    provider_id: ProviderId
    digest: Digest
    size: int
    price: int
    """The provider's price for a unit of work when the lease was granted."""


class Payment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The payment of one replica that agrees."""

    index: int
    account: AccountId
    amount: int


class Quorum(msgspec.Struct, array_like=True):
    """The votes of a job with replicas, kept while it lives or a reorg could still move its money."""

    task_id: TaskId
    n: int
    """How many must agree."""
    m: int
    """How many replicas there are."""
    votes: list[Vote] = []
    """In the order of arrival."""
    paid: tuple[Payment, ...] = ()
    """The payments once n agree, by index."""
