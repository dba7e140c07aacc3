"""Verifiers in processes of their own: whatever one does, whoever asked is told, and the next one is served."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from multiprocessing.context import SpawnProcess
from typing import Any

import pytest
from tests.verifiers import cases

from holdfast.core.proof.finding import Case, Finding, Method
from holdfast.verifiers.cell import Broken, Cells, Limits

pytestmark = pytest.mark.rule("PRF-002")
CASE = cases.case_of(cases.ai(), b"out")
START_S = 60.0
"""How long a process may take to start on a machine that has other work."""


@pytest.fixture
async def cells() -> AsyncIterator[Cells]:
    made = Cells(1, Limits(seconds_max=60.0, memory_mib_max=512, start_s_max=START_S))
    yield made
    await made.close()


async def asked(cells: Cells, find: Callable[[Case], Any]) -> Finding:
    async with asyncio.timeout(2 * START_S):
        return await cells.find(Method("", find), CASE)


@pytest.mark.parametrize(
    ("find", "says"),
    [
        (cases.crashes, "its process was ended by SIGSEGV"),
        (cases.leaves, "its process ended with 3"),
        (cases.eats_memory, "it took more memory than it may"),
        (cases.raises, "it raised ValueError: not my kind of proof"),
        (cases.answers_nonsense, "it answered with a str"),
    ],
)
async def test_a_verifier_that_misbehaves_is_told_by_name_and_the_next_one_is_served(
    cells: Cells, find: Callable[[Case], Any], says: str
) -> None:
    with pytest.raises(Broken, match=says):
        await asked(cells, find)
    assert (await asked(cells, cases.says_yes)).is_good


async def test_a_verifier_that_hangs_is_killed_when_its_time_is_over() -> None:
    made = Cells(1, Limits(seconds_max=0.2, memory_mib_max=512, start_s_max=START_S))
    with pytest.raises(Broken, match=r"it took longer than 0\.2 s"):
        await asked(made, cases.hangs)
    await made.close()


async def test_a_process_is_used_again_and_is_not_the_nodes_own(cells: Cells) -> None:
    import os

    first, second = await asked(cells, cases.says_yes), await asked(cells, cases.says_yes)
    assert first == second
    assert first.reasons != f"seen by {os.getpid()}"


async def test_closing_does_not_wait_for_a_verifier_that_hangs() -> None:
    made = Cells(1, Limits(seconds_max=600.0, memory_mib_max=512, start_s_max=START_S))
    await asked(made, cases.says_yes)
    waiting = asyncio.create_task(asked(made, cases.hangs))
    async with asyncio.timeout(START_S):
        while not made._free.empty():  # the only process is asked now
            await asyncio.sleep(0.005)
    async with asyncio.timeout(START_S):
        await made.close()
        with pytest.raises(Broken):
            await waiting


async def test_a_process_that_cannot_be_started_is_told_and_the_next_one_is(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    with monkeypatch.context() as broken:
        broken.setattr(SpawnProcess, "start", fail)
        for _ in range(2):
            with pytest.raises(Broken, match="its process did not start: Resource temporarily unavailable"):
                await asked(cells, cases.says_yes)
    assert (await asked(cells, cases.says_yes)).is_good


async def test_a_process_that_ends_before_it_is_there_is_told_by_name(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("holdfast.verifiers.cell._serve", cases.ends_at_once)
        with pytest.raises(Broken, match="its process did not start"):
            await asked(cells, cases.says_yes)
    assert (await asked(cells, cases.says_yes)).is_good
