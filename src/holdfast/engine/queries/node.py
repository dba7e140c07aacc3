"""Queries about the node itself: its owner, its digest, and what its memory knows of a claimed id."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.base.event import OwnershipTaken
from holdfast.core.base.values import Digest, EventNo
from holdfast.core.policy import Policy
from holdfast.core.policy_change.model import adoption_event
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.queries.query import Query


class Ping(Query[None], frozen=True):
    """Reads nothing. As a durable query it returns once everything that was decided before it is durable."""


class GetOwner(Query[OwnershipTaken | None], frozen=True):
    """Who owns the journal, None before the first owner."""


class AdoptedPolicy(msgspec.Struct, frozen=True):
    """The policy that counts, and the event that adopted it; 0 where the journal adopted none."""

    policy: Policy
    event: EventNo
    is_adopted: bool


class GetPolicy(Query[AdoptedPolicy], frozen=True):
    """Which policy counts (PRI-003)."""


class StateDigest(msgspec.Struct, frozen=True):
    """The digest of the state as of an event: equal on every node that has applied that event."""

    event: EventNo
    digest: Digest


class GetStateDigest(Query[StateDigest], frozen=True):
    """Walks the whole state: slow on a large one."""


class GetClaimingEvent(Query[EventNo | None], frozen=True):
    """Which event claimed this key, None where memory does not know; the tables may."""

    key: bytes


class GetEvictedAsOf(Query[EventNo], frozen=True):
    """What left memory is in the tables, once they are complete up to this event (ENG-004)."""


def _ping(_: State, __: Ping) -> None:
    return None


def _get_owner(state: State, _: GetOwner) -> OwnershipTaken | None:
    return state.owner


def _get_policy(state: State, _: GetPolicy) -> AdoptedPolicy:
    return AdoptedPolicy(state.policy, adoption_event(state.policy_bytes), bool(state.policy_bytes))


def _get_state_digest(state: State, _: GetStateDigest) -> StateDigest:
    return StateDigest(state.last_event, digest(state))


def _get_claiming_event(state: State, query: GetClaimingEvent) -> EventNo | None:
    return state.claims.event_of(query.key)


def _get_evicted_as_of(state: State, _: GetEvictedAsOf) -> EventNo:
    return state.evicted_as_of


QUERIES: Final = {
    Ping: _ping,
    GetOwner: _get_owner,
    GetPolicy: _get_policy,
    GetStateDigest: _get_state_digest,
    GetClaimingEvent: _get_claiming_event,
    GetEvictedAsOf: _get_evicted_as_of,
}
