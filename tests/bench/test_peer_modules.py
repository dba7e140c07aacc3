"""A peer that cannot run is named with its reason; the measurement goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench.peer_modules import PeerFailed, run_peer, why_not_installed

from bench import machine_load, measure, peer_modules


async def test_the_last_line_is_what_a_peer_says() -> None:
    assert await run_peer([sys.executable, "-c", "print('noise'); print('[1, 2]')"], list[int], 30.0) == [1, 2]


async def test_a_peer_that_fails_says_why() -> None:
    with pytest.raises(PeerFailed, match="ValueError: no such broker"):
        await run_peer([sys.executable, "-c", "raise ValueError('no such broker')"], list[int], 30.0)


async def test_a_peer_that_does_not_answer_is_ended() -> None:
    with pytest.raises(PeerFailed, match=r"no answer within 0\.1 s"):
        await run_peer([sys.executable, "-c", "import time; time.sleep(99)"], int, 0.1)


def test_without_their_environment_no_peer_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peer_modules, "PYTHON", tmp_path / "python")
    assert why_not_installed("no_peer_of_this_name") == "not installed; make peers does it"


def test_a_module_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_modules, "PYTHON", Path(sys.executable))
    assert why_not_installed("msgspec", "dbos_of_nobody") == "dbos_of_nobody not installed; make peers does it"


def test_a_table_says_who_was_not_measured(tmp_path: Path) -> None:
    table = measure.table("some", "Some", "ms", {"a": [1.0]}, ["a"], None)
    table.not_measured = ["dramatiq: not installed"]
    assert "  NOT MEASURED dramatiq: not installed\n" in measure.show(table)
    load = machine_load.MachineLoad(0.1, 2, True)
    report = measure.Report("some", True, "3.11", "ext4", load, [table])
    measure.save(tmp_path / "some.json", report)
    assert measure.load(tmp_path / "some.json") == report
