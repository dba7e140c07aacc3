"""Work in another process: its result, how its faults are reported, and that it blocks no other work."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from holdfast.adapters.run_in_process import run_in_process
from holdfast.core.base.errors import Corrupt, Unavailable

pytestmark = pytest.mark.rule("ENG-003")


def double(number: int) -> int:
    return 2 * number


def fail(says: str) -> int:
    raise Corrupt("ENG-003", says)


def die(_: None) -> int:
    os._exit(3)


def interrupted(number: int) -> int:
    """As by Ctrl-C in the terminal: the whole group of processes gets the signal."""
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    return number


def begin_and_wait(marker: Path) -> None:
    marker.write_text(str(os.getpid()))
    time.sleep(60)


async def test_work_in_a_process_returns_its_result_and_its_faults_by_their_words() -> None:
    assert await run_in_process(double, 21) == 42
    with pytest.raises(Unavailable, match="ENG-003: the snapshot reads back differently"):
        await run_in_process(fail, "the snapshot reads back differently")
    with pytest.raises(Unavailable, match="ended with"):
        await run_in_process(die, None)


async def test_a_signal_for_the_nodes_group_does_not_end_work_in_a_process() -> None:
    assert await run_in_process(interrupted, 7) == 7


async def test_a_caller_that_is_cancelled_ends_the_work_and_blocks_no_other(tmp_path: Path) -> None:
    working = asyncio.create_task(run_in_process(begin_and_wait, tmp_path / "mark"))
    while not (tmp_path / "mark").exists() or not (number := (tmp_path / "mark").read_text()):
        await asyncio.sleep(0.01)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(working, 60)
    assert not Path(f"/proc/{number}").exists()
