"""The Gregorian calendar in integers: days since 1970-01-01 to year, month and day, and back."""

from __future__ import annotations

from typing import Final

_ERA_DAYS: Final = 146_097
"""The calendar repeats every 400 years."""
_TO_1970: Final = 719_468
"""Days from the first of March of the year 0: a year that begins in March has its leap day at the end."""


def date_of(day: int) -> tuple[int, int, int]:
    """Year, month and day of this day since 1970."""
    era, day_of_era = divmod(day + _TO_1970, _ERA_DAYS)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    from_march = (5 * day_of_year + 2) // 153
    month = from_march + 3 if from_march < 10 else from_march - 9
    return era * 400 + year_of_era + (month <= 2), month, day_of_year - (153 * from_march + 2) // 5 + 1


def day_of(year: int, month: int, day: int) -> int:
    """The day since 1970 of this date."""
    from_march, march_year = (month - 3, year) if month > 2 else (month + 9, year - 1)
    era, year_of_era = divmod(march_year, 400)
    day_of_year = (153 * from_march + 2) // 5 + day - 1
    return era * _ERA_DAYS + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - _TO_1970


def weekday_of(day: int) -> int:
    """0 is Sunday; 1970 began on a Thursday."""
    return (day + 4) % 7
