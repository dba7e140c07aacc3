"""Cron expressions against a naive reader, minute by minute; corners of calendars; what is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.counts import counts

from holdfast.core.schedule.calendar_days import date_of, day_of, weekday_of
from holdfast.core.schedule.cron import MINUTE_MS, NotCron, parse_cron

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
HORIZON_MINUTES = counts(2, 30) * 24 * 60


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000


def text_of(at_ms: int | None) -> str:
    assert at_ms is not None
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M")


# ------------------------------------------------------------------------------------------------ the naive reader


def naive_number(text: str) -> int:
    if text in MONTHS:
        return MONTHS.index(text) + 1
    return DAYS.index(text) if text in DAYS else int(text)


def naive_is_in(text: str, number: int, low: int, high: int) -> bool:
    for part in text.split(","):
        whole, _, step = part.partition("/")
        first, _, last = whole.partition("-")
        if whole == "*":
            begin, end = low, high
        else:
            begin = naive_number(first)
            end = naive_number(last) if last else begin
        if begin <= number <= end and (number - begin) % int(step or 1) == 0:
            return True
    return False


def naive_is_match(expression: str, at: datetime) -> bool:
    minute, hour, day, month, weekday = expression.lower().split()
    sunday_first = at.isoweekday() % 7
    is_day = naive_is_in(day, at.day, 1, 31)
    is_weekday = naive_is_in(weekday, sunday_first, 0, 6) or (sunday_first == 0 and naive_is_in(weekday, 7, 0, 6))
    is_date = (is_day and is_weekday) if day[0] == "*" or weekday[0] == "*" else (is_day or is_weekday)
    return (
        naive_is_in(minute, at.minute, 0, 59)
        and naive_is_in(hour, at.hour, 0, 23)
        and naive_is_in(month, at.month, 1, 12)
        and is_date
    )


@st.composite
def field(draw: st.DrawFn, low: int, high: int, names: tuple[str, ...] = ()) -> str:
    def number(least: int) -> tuple[int, str]:
        value = draw(st.integers(least, high))
        name = names[(value - low) % len(names)] if names and value - low < len(names) and draw(st.booleans()) else ""
        return value, name or str(value)

    def part() -> str:
        kind = draw(st.sampled_from(["*", "one", "range", "step", "range step"]))
        if kind == "*":
            return "*"
        if kind == "step":
            return f"*/{draw(st.integers(1, high))}"
        begin, text = number(low)
        if kind == "one":
            return text
        _, last = number(begin)
        return f"{text}-{last}" + (f"/{draw(st.integers(1, high))}" if kind == "range step" else "")

    return ",".join(part() for _ in range(draw(st.integers(1, 3))))


expressions = st.tuples(
    field(0, 59), field(0, 23), field(1, 31), field(1, 12, MONTHS), field(0, 7, DAYS)
).map(" ".join)  # fmt: skip
times = st.datetimes(datetime(1999, 1, 1), datetime(2101, 1, 1)).map(lambda at: at.replace(tzinfo=UTC, microsecond=0))


@pytest.mark.rule("JOB-014")
@settings(max_examples=counts(60, 400))
@given(expressions, times, st.sampled_from([0, 0, 330, -570]))
def test_the_next_match_is_the_one_that_a_naive_reader_finds_minute_by_minute(
    expression: str, at: datetime, offset_min: int
) -> None:
    answer = parse_cron(expression).next_after(int(at.timestamp()) * 1000, offset_min)
    local = at.replace(second=0) + timedelta(minutes=offset_min)
    naive = (local + timedelta(minutes=step) for step in range(1, HORIZON_MINUTES + 1))
    expected = next((minute for minute in naive if naive_is_match(expression, minute)), None)
    if expected is not None:
        assert answer == int((expected - timedelta(minutes=offset_min)).timestamp()) * 1000
    elif answer is not None:
        found = datetime.fromtimestamp(answer // 1000, UTC) + timedelta(minutes=offset_min)
        assert found > local + timedelta(minutes=HORIZON_MINUTES)
        assert naive_is_match(expression, found)


@pytest.mark.rule("JOB-014")
@settings(max_examples=counts(30, 1_000))
@given(expressions, times)
def test_matches_of_years_are_the_days_that_a_naive_reader_finds_day_by_day(expression: str, at: datetime) -> None:
    """Of each day only its first match: years of minutes would take too long."""
    _, _, day, month, weekday = expression.split()
    daily = f"0 0 {day} {month} {weekday}"
    answer = parse_cron(daily).next_after(int(at.timestamp()) * 1000)
    midnight = at.replace(hour=0, minute=0, second=0)
    naive = (midnight + timedelta(days=step) for step in range(1, 3 * 366))
    expected = next((day for day in naive if naive_is_match(daily, day)), None)
    if expected is not None:
        assert answer == int(expected.timestamp()) * 1000


@pytest.mark.rule("JOB-014")
@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("* * * * *", "2026-11-18 10:00:00", "2026-11-18 10:01"),
        ("* * * * *", "2026-11-18 09:59:59", "2026-11-18 10:00"),
        ("0 9 * * mon-fri", "2026-11-20 09:00:00", "2026-11-23 09:00"),
        ("@daily", "2026-12-31 23:59:59", "2027-01-01 00:00"),
        ("@hourly", "2026-12-31 23:00:00", "2027-01-01 00:00"),
        ("@weekly", "2026-11-18 00:00:00", "2026-11-22 00:00"),
        ("@monthly", "2026-11-01 00:00:00", "2026-12-01 00:00"),
        ("@yearly", "2026-01-01 00:00:00", "2027-01-01 00:00"),
        ("0 0 29 2 *", "2096-02-29 00:00:00", "2104-02-29 00:00"),
        ("0 0 31 * *", "2026-04-01 00:00:00", "2026-05-31 00:00"),
        ("0 0 13 * fri", "2026-11-18 00:00:00", "2026-11-20 00:00"),
        ("0 0 * * 7", "2026-11-18 00:00:00", "2026-11-22 00:00"),
        ("30 8-18/5 * JAN,dec *", "2026-11-18 00:00:00", "2026-12-01 08:30"),
    ],
)
def test_matches_at_the_corners_of_calendars(expression: str, after: str, expected: str) -> None:
    assert text_of(parse_cron(expression).next_after(ms(after))) == expected


@pytest.mark.parametrize("begin", ["1599-12-31", "1899-12-31", "1969-12-31", "1999-12-31", "2099-12-31", "2399-12-31"])
def test_the_calendar_is_the_one_of_the_standard_library(begin: str) -> None:
    first = date.fromisoformat(begin)
    for step in range(800):
        at = first + timedelta(days=step)
        day = at.toordinal() - date(1970, 1, 1).toordinal()
        assert (date_of(day), weekday_of(day)) == ((at.year, at.month, at.day), at.isoweekday() % 7)
        assert day_of(at.year, at.month, at.day) == day


@pytest.mark.rule("JOB-014")
def test_an_offset_moves_the_day_and_its_weekday() -> None:
    """Monday 00:30 in +02:00 is Sunday 22:30 in UTC."""
    cron = parse_cron("30 0 * * mon")
    assert text_of(cron.next_after(ms("2026-11-18 00:00:00"), 120)) == "2026-11-22 22:30"
    assert text_of(cron.next_after(ms("2026-11-18 00:00:00"), -120)) == "2026-11-23 02:30"


def test_a_day_that_no_month_has_never_comes() -> None:
    assert parse_cron("0 0 30 2 *").next_after(0) is None
    assert parse_cron("0 0 30 2 *").next_after(ms("9990-01-01 00:00:00")) is None


def test_matches_come_in_order_and_each_once() -> None:
    first = [at for at, _ in zip(parse_cron("*/7 * * * *").firings(0), range(20), strict=False)]
    assert first == sorted(set(first))
    assert all(at % MINUTE_MS == 0 for at in first)


@pytest.mark.rule("JOB-014")
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("* * * * * *", "6 fields"),
        ("@reboot", "@reboot"),
        ("60 * * * *", "minute: '60'"),
        ("* 24 * * *", "hour: '24'"),
        ("* * 0 * *", "day of month: '0'"),
        ("* * 32 * *", "day of month: '32'"),
        ("* * * 13 *", "month: '13'"),
        ("* * * * 8", "day of week: '8'"),
        ("* * * foo *", "month: 'foo'"),
        ("5-1 * * * *", "backwards"),
        ("*/0 * * * *", "step of 0"),
        ("5/15 * * * *", "write 5-59/15"),
        ("*-5 * * * *", "minute"),
        ("1,,2 * * * *", "minute"),
        ("-1 * * * *", "minute"),
        ("1.5 * * * *", "minute"),
        ("٣ * * * *", "minute"),
        ("* * L * *", "day of month"),
        ("* " * 200, "256"),
    ],
)
def test_what_is_no_expression_is_refused_with_its_field(text: str, fault: str) -> None:
    with pytest.raises(NotCron, match=fault.replace("*", ".")):
        parse_cron(text)
