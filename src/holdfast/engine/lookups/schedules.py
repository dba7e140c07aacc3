"""Queries about schedules (JOB-014): all of them are in memory."""

from __future__ import annotations

from itertools import islice
from typing import Final

import msgspec

from holdfast.core.base.values import AccountId, EventNo
from holdfast.core.schedule.model import Schedule, ScheduleId, ScheduleState
from holdfast.core.state import State
from holdfast.engine.queries.query import Query


class GetSchedule(Query[Schedule | None], frozen=True):
    """A schedule by its id."""

    id: ScheduleId


class GetScheduleByName(Query[Schedule | None], frozen=True):
    """A schedule by its caller and its name."""

    caller: AccountId
    name: str


class SchedulesInMemory(msgspec.Struct, frozen=True):
    """Some schedules by their creation, and where the next page begins."""

    schedules: list[Schedule]
    as_of: EventNo
    next_cursor: int | None


class ListSchedules(Query[SchedulesInMemory], frozen=True):
    """A page of the schedules of a caller, or of all; of a caller by the index of its names (SEC-002)."""

    caller: AccountId | None
    state: ScheduleState | None
    cursor: int
    limit: int
    is_newest_first: bool = False


def _get(state: State, query: GetSchedule) -> Schedule | None:
    schedule = state.schedules.by_id.get(query.id)
    return None if schedule is None else _copy(schedule)


def _get_by_name(state: State, query: GetScheduleByName) -> Schedule | None:
    id_ = state.schedules.by_name.get(query.caller, {}).get(query.name)
    return None if id_ is None else _copy(state.schedules.by_id[id_])


def _list(state: State, query: ListSchedules) -> SchedulesInMemory:
    by_id, by_name = state.schedules.by_id, state.schedules.by_name
    ids = by_id.keys() if query.caller is None else by_name.get(query.caller, {}).values()
    # Names are in the order of their creation, as ids are: a name that is removed and taken again goes to the end.
    ordered = (by_id[id_] for id_ in (reversed(ids) if query.is_newest_first else ids))
    left = (each for each in ordered if _is_after(each.event, query))
    matching = (each for each in left if query.state is None or each.state is query.state)
    page = [_copy(each) for each in islice(matching, query.limit + 1)]
    next_cursor = page[query.limit - 1].event if len(page) > query.limit else None
    return SchedulesInMemory(page[: query.limit], state.last_event, next_cursor)


def _is_after(event: EventNo, query: ListSchedules) -> bool:
    """Newest first the cursor is above what is left; 0 is the first page."""
    return event < query.cursor or not query.cursor if query.is_newest_first else event > query.cursor


def _copy(schedule: Schedule) -> Schedule:
    """Its firings are a list that grows while an answer is being sent."""
    return msgspec.structs.replace(schedule, firings=list(schedule.firings))


QUERIES: Final = {GetSchedule: _get, GetScheduleByName: _get_by_name, ListSchedules: _list}
