"""Queries about evidence: watermarks of sessions, owners of channels, dead letters that wait."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.base.values import EventNo
from holdfast.core.evidence.model import DeadLetter, SessionWatermark, watermark_id
from holdfast.core.evidence.sessions import owner_of
from holdfast.core.state import State
from holdfast.engine.queries.query import Query, copy_record


class GetWatermark(Query[SessionWatermark | None], frozen=True):
    """How far a session has come; watermarks never leave memory."""

    channel: str
    session: str


class LiveSession(msgspec.Struct, frozen=True):
    """A session with what is known of its channel."""

    watermark: SessionWatermark | None
    """None where this node has not applied it yet: a follower's tables can be ahead of its memory."""
    channel_owner: str
    dead_letters: int
    """Dead letters of the channel that wait."""


class GetSessions(Query[list[LiveSession]], frozen=True):
    """How far these sessions, given as channel and session, have come; the answer is in their order."""

    sessions: tuple[tuple[str, str], ...]


class ListRetrovueSessions(Query[list[SessionWatermark]], frozen=True):
    """EVD-009: all sessions of channels without a provider."""


class GetChannelOwner(Query[str], frozen=True):
    """EVD-009: the name in the certificate that may send for this channel."""

    channel: str


class GetWaitingDeadLetter(Query[DeadLetter | None], frozen=True):
    """A dead letter that is not resolved; the tables have the others."""

    event: EventNo


class CountDeadLetters(Query[int], frozen=True):
    """How many dead letters wait."""


class GetDeadLetterCapacity(Query[int], frozen=True):
    """EVD-007: how many more dead letters of this channel may wait."""

    channel: str


def _get_watermark(state: State, query: GetWatermark) -> SessionWatermark | None:
    return copy_record(state.watermarks.get(watermark_id(query.channel, query.session)))


def _get_sessions(state: State, query: GetSessions) -> list[LiveSession]:
    return [
        LiveSession(
            copy_record(state.watermarks.get(watermark_id(channel, session))),
            owner_of(state, channel),
            state.dead_letters_waiting.get(channel, 0),
        )
        for channel, session in query.sessions
    ]


def _list_retrovue_sessions(state: State, _: ListRetrovueSessions) -> list[SessionWatermark]:
    return [msgspec.structs.replace(each) for each in state.watermarks.values() if not each.provider_id]


def _get_channel_owner(state: State, query: GetChannelOwner) -> str:
    return owner_of(state, query.channel)


def _get_waiting_dead_letter(state: State, query: GetWaitingDeadLetter) -> DeadLetter | None:
    return copy_record(state.dead_letters.get(query.event))


def _count_dead_letters(state: State, _: CountDeadLetters) -> int:
    return len(state.dead_letters)


def _get_dead_letter_capacity(state: State, query: GetDeadLetterCapacity) -> int:
    waiting = state.dead_letters_waiting.get(query.channel, 0)
    return state.policy.evidence.dead_letters_per_channel_max - waiting


QUERIES: Final = {
    GetWatermark: _get_watermark,
    GetSessions: _get_sessions,
    ListRetrovueSessions: _list_retrovue_sessions,
    GetChannelOwner: _get_channel_owner,
    GetWaitingDeadLetter: _get_waiting_dead_letter,
    CountDeadLetters: _count_dead_letters,
    GetDeadLetterCapacity: _get_dead_letter_capacity,
}
