"""Pauses between tries: doubling up to a cap, anything below it by chance, short again after progress."""

from __future__ import annotations

import pytest

from holdfast.shipping.backoff import Backoff


class RecordingClock:
    """Notes what was waited for, and waits for nothing."""

    def __init__(self) -> None:
        self.slept: list[int] = []

    def wall_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0

    async def sleep(self, ms: int) -> None:
        self.slept.append(ms)


@pytest.mark.rule("EVD-004")
async def test_pauses_double_up_to_the_cap() -> None:
    clock, backoff = RecordingClock(), Backoff(100, 5_000, lambda below: below - 1)
    for _ in range(8):
        await backoff.pause(clock)
    assert clock.slept == [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]


@pytest.mark.rule("EVD-004")
def test_a_pause_is_anything_from_nothing_to_its_bound() -> None:
    asked: list[int] = []

    def draw(below: int) -> int:
        asked.append(below)
        return 0

    backoff = Backoff(100, 5_000, draw)
    assert [backoff.next_ms() for _ in range(3)] == [0, 0, 0]
    assert asked == [101, 201, 401]


@pytest.mark.rule("EVD-004")
def test_progress_makes_the_next_pause_short_again() -> None:
    backoff = Backoff(100, 5_000, lambda below: below - 1)
    assert [backoff.next_ms() for _ in range(3)] == [100, 200, 400]
    backoff.reset()
    assert backoff.next_ms() == 100


def test_a_thousand_failures_do_no_harm() -> None:
    backoff = Backoff(100, 5_000, lambda below: below - 1)
    assert [backoff.next_ms() for _ in range(1_000)][-1] == 5_000
