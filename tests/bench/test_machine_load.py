"""Figures of a busy machine say so."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from bench import machine_load, measure


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the machine's load is at one look after the other; the last one stays. No time passes while it waits."""
    seen, now_s = [0.0], 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    monkeypatch.setattr(os, "getloadavg", lambda: (seen.pop(0) if len(seen) > 1 else seen[0], 0.0, 0.0))
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    return seen


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    machine_load._begun = None


def table() -> measure.Table:
    return measure.table("some", "Some", "ms", {"a": [1.0]}, ["a"], None)


def test_a_load_just_below_the_limit_is_quiet(loads: list[float]) -> None:
    loads[:] = [0.49]
    assert machine_load.begin().is_quiet
    assert "load average 0.49 at the start (quiet)" in measure.show(table())


def test_a_load_at_the_limit_is_busy_and_every_table_says_so(loads: list[float]) -> None:
    loads[:] = [0.5]
    assert not machine_load.begin().is_quiet
    assert "THE MACHINE WAS BUSY" in measure.show(table())


def test_it_waits_until_the_machine_is_quiet(loads: list[float]) -> None:
    loads[:] = [3.0, 1.0, 0.2]
    assert machine_load.begin(60.0) == machine_load.MachineLoad(0.2, os.cpu_count() or 1, True, 10.0)


def test_it_does_not_wait_for_ever(loads: list[float]) -> None:
    loads[:] = [3.0]
    begun = machine_load.begin(20.0)
    assert (begun.is_quiet, begun.waited_s) == (False, 20.0)
