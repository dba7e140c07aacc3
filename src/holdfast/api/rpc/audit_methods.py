"""`audit.listActions`: who did what with which events, from the journal, for operators and auditors (SEC-001).

The journal records a privileged action in the batch of its events and before them, so no action is without an actor.
Actions are rare among the events: a call reads a bounded piece of the journal and says where the next one goes on.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Any, Final

import msgspec

from holdfast.api.node_access import LONG_READ_COST, READERS, NodeAccess, RpcCall, RpcMethod
from holdfast.api.public_events import event_json, public_name
from holdfast.api.rpc.paging import why_not_limit
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.base.privileged import PrivilegedActRecorded
from holdfast.core.base.values import EventNo
from holdfast.engine.event_stream import EventStream, StoredEvent

EVENTS_PER_CALL: Final = 4_096
DELETED: Final = "ENG-006"
"""The rule under which the journal says that it has not the oldest events any more."""


class ListActionsParams(msgspec.Struct, frozen=True):
    """A page of privileged actions; `after` is the last page's `next_after`, or any event."""

    after: int = 0
    limit: int = 100
    actor: str | None = None
    """Only this key's, by its id, or `local`."""
    newest_first: bool = False


class PrivilegedAction(msgspec.Struct, frozen=True):
    """One action and the events that it caused."""

    number: EventNo
    time_ms: int
    actor: str
    """The key's id, or `local` for a caller on the node's socket."""
    method: str
    events: list[dict[str, Any]]


class ActionPage(msgspec.Struct, frozen=True):
    """Some actions. A page may be empty although more follow: each call reads a bounded piece of the journal."""

    rows: list[PrivilegedAction]
    as_of: EventNo
    next_after: EventNo | None


class _Window(msgspec.Struct, frozen=True):
    """A piece of the journal: events above `low`, up to `high`."""

    low: EventNo
    high: EventNo


async def _list(access: NodeAccess, _: RpcCall, params: ListActionsParams) -> ActionPage | Refused:
    stream, last = access.source.event_stream, access.source.replication_status().tip.last
    if refusal := why_not_limit(params.limit) or stream.why_not_follow(EventNo(params.after)):
        return refusal
    if params.newest_first:
        return await _older(stream, last, params)
    window = _Window(EventNo(params.after), EventNo(min(last, params.after + EVENTS_PER_CALL)))
    found = await _actions(stream, window, params.actor)
    if len(found) > params.limit:
        return ActionPage(found[: params.limit], last, found[params.limit - 1].number)
    return ActionPage(found, last, window.high if window.high < last else None)


async def _older(stream: EventStream, last: EventNo, params: ListActionsParams) -> ActionPage:
    """Newest first: `after` is the event below which it goes on. It ends where older events were deleted."""
    high = params.after - 1 if params.after else last
    window = _Window(EventNo(max(0, high - EVENTS_PER_CALL)), EventNo(high))
    try:
        found, is_end = await _actions(stream, window, params.actor), window.low == 0
    except Unavailable as fault:
        if fault.rule != DELETED:
            raise
        found, is_end = await _actions(stream, _Window(await stream.deleted_until(), window.high), params.actor), True
    rows = found[::-1][: params.limit]
    if len(found) > params.limit:
        return ActionPage(rows, last, rows[-1].number)
    return ActionPage(rows, last, None if is_end else EventNo(window.low + 1))


async def _actions(stream: EventStream, window: _Window, actor: str | None) -> list[PrivilegedAction]:
    """The actions recorded in the window, oldest first, each with all of its events, of which the last may be above."""
    found: list[PrivilegedAction] = []
    if window.low >= window.high:
        return found
    left = 0
    async with aclosing(stream.follow(window.low)) as events:  # type: ignore[type-var]
        async for stored in events:
            if isinstance(stored.event, PrivilegedActRecorded):
                found.append(_action(stored.number, stored.time_ms, stored.event))
                left = stored.event.events
            elif left:
                found[-1].events.append(_event(stored))
                left -= 1
            if stored.number >= window.high and left == 0:
                break
    return [action for action in found if actor is None or action.actor == actor]


def _action(number: EventNo, time_ms: int, act: PrivilegedActRecorded) -> PrivilegedAction:
    return PrivilegedAction(number, time_ms, act.actor, act.method, [])


def _event(stored: StoredEvent) -> dict[str, Any]:
    shown = event_json(stored, public_name(type(stored.event), stored.event))
    return {name: shown[name] for name in ("number", "type", "event")}


METHODS: Final[dict[str, RpcMethod]] = {
    "audit.listActions": RpcMethod(
        "Privileged actions: when, by whom, which method, and the events it caused.",
        ListActionsParams,
        ActionPage,
        _list,
        READERS,
        cost=LONG_READ_COST,
    ),
}
