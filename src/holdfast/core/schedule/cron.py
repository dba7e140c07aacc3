"""Cron expressions (JOB-014): five fields, whole minutes, integers alone; no time zone is looked up.

`minute hour day-of-month month day-of-week`: each `*`, or a list of numbers, ranges and steps: `*/15`, `9-17`, `1,15`,
`8-18/2`; months and days of the week have names, too. Sunday is 0 and 7. As crontab(5) has it, a day must match both
fields of days where one of them begins with `*`, else one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from holdfast.core.schedule.calendar_days import date_of, day_of, weekday_of

MINUTE_MS: Final = 60_000
DAY_MINUTES: Final = 24 * 60
YEARS_MAX: Final = 40
"""An expression without a match for this long has none: calendars repeat every 28 years, or 40 across a century."""
EXPRESSION_MAX: Final = 256

ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class _Field(NamedTuple):
    """One field of an expression: its name, its range, the last number of `*`, and the names of its numbers."""

    name: str
    low: int
    high: int
    last: int
    names: Mapping[str, int] = MappingProxyType({})


_FIELDS: Final = (
    _Field("minute", 0, 59, 59),
    _Field("hour", 0, 23, 23),
    _Field("day of month", 1, 31, 31),
    _Field("month", 1, 12, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Field("day of week", 0, 7, 6, {name: number for number, name in enumerate(_WEEKDAYS)}),
)
_PART: Final = re.compile(r"(?P<all>\*)?(?P<low>[0-9a-z]+)?(?:-(?P<high>[0-9a-z]+))?(?:/(?P<step>[0-9]{1,2}))?")


class NotCron(ValueError):
    """The text is no cron expression; the message names the field."""


class Cron(NamedTuple):
    """A parsed expression: the numbers that match, in order."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    is_either_day: bool
    """Whether one of the two fields of days is enough."""

    def next_after(self, after_ms: int, offset_min: int = 0) -> int | None:
        """The first match after this time, None where there is none; `offset_min` is the zone, in minutes of UTC."""
        first = after_ms // MINUTE_MS + 1 + offset_min
        day, minute = divmod(first, DAY_MINUTES)
        for matching in self._days_from(day):
            at = self._minute_from(minute if matching == day else 0)
            if at is not None:
                return (matching * DAY_MINUTES + at - offset_min) * MINUTE_MS
        return None

    def firings(self, after_ms: int, offset_min: int = 0) -> Iterator[int]:
        """All matches after this time, in order."""
        at_ms = self.next_after(after_ms, offset_min)
        while at_ms is not None:
            yield at_ms
            at_ms = self.next_after(at_ms, offset_min)

    def _days_from(self, day: int) -> Iterator[int]:
        """Days since 1970 that match, from this one on."""
        last = day + YEARS_MAX * 366
        while day <= last:
            year, month, day_of_month = date_of(day)
            if month not in self.months:
                day = day_of(year + month // 12, month % 12 + 1, 1)
                continue
            if self._is_day(day_of_month, weekday_of(day)):
                yield day
            day += 1

    def _is_day(self, day_of_month: int, weekday: int) -> bool:
        is_day, is_weekday = day_of_month in self.days, weekday in self.weekdays
        return (is_day or is_weekday) if self.is_either_day else (is_day and is_weekday)

    def _minute_from(self, minute: int) -> int | None:
        """The first minute of a day that matches, from this one on."""
        for hour in self.hours:
            if hour * 60 + 59 >= minute:
                for each in self.minutes:
                    if hour * 60 + each >= minute:
                        return hour * 60 + each
        return None


@lru_cache(maxsize=1_024)
def parse_cron(text: str) -> Cron:
    """The expression; NotCron with the field that is wrong."""
    if len(text) > EXPRESSION_MAX:
        raise NotCron(f"at most {EXPRESSION_MAX} characters")
    words = text.lower().split()
    if len(words) == 1 and words[0].startswith("@"):
        if words[0] not in ALIASES:
            raise NotCron(f"{words[0]!r:.40} is none of {', '.join(ALIASES)}")
        words = ALIASES[words[0]].split()
    if len(words) != len(_FIELDS):
        raise NotCron(f"{len(words)} fields, not 5: minute hour day-of-month month day-of-week")
    minutes, hours, days, months, weekdays = (
        {number for part in word.split(",") for number in _parse_part(field, part)}
        for field, word in zip(_FIELDS, words, strict=True)
    )
    return Cron(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(number % 7 for number in weekdays),
        is_either_day=not (words[2].startswith("*") or words[4].startswith("*")),
    )


def _parse_part(field: _Field, part: str) -> range:
    found = _PART.fullmatch(part)
    if found is None or (found["all"] is None) == (found["low"] is None) or (found["all"] and found["high"]):
        raise NotCron(f"{field.name}: {part!r:.40} is none of *, 5, 1-5, */5, 1-5/2")
    low = field.low if found["all"] else _number(field, found["low"])
    if found["high"] is not None:
        high = _number(field, found["high"])
    elif found["all"]:
        high = field.last
    elif found["step"] is None:
        high = low
    else:
        raise NotCron(f"{field.name}: {part!r:.40} has a step but no range: write {low}-{field.high}/{found['step']}")
    if high < low:
        raise NotCron(f"{field.name}: {part!r:.40} runs backwards")
    step = int(found["step"] or 1)
    if step == 0:
        raise NotCron(f"{field.name}: {part!r:.40} has a step of 0")
    return range(low, high + 1, step)


def _number(field: _Field, text: str) -> int:
    number = field.names.get(text, int(text) if text.isdecimal() and len(text) <= 2 else -1)
    if not field.low <= number <= field.high:
        raise NotCron(f"{field.name}: {text!r:.40} is not in {field.low} … {field.high}")
    return number
