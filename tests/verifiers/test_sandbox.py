"""Verifiers in processes of their own: whatever one does, whoever asked is told, and the next one is served."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from multiprocessing.context import SpawnProcess
from typing import Any

import pytest
from tests.verifiers import verification_inputs

from holdfast.ports.verifier import ProofMethod, VerificationInput, VerificationResult
from holdfast.verifiers.sandbox import SandboxFailed, SandboxLimits, SandboxPool

pytestmark = pytest.mark.rule("PRF-002")
CASE = verification_inputs.verification_input(verification_inputs.ai(), b"out")
START_S = 60.0
"""How long a process may take to start on a machine that has other work."""


@pytest.fixture
async def sandboxes() -> AsyncIterator[SandboxPool]:
    made = SandboxPool(1, SandboxLimits(seconds_max=60.0, memory_mib_max=512, start_s_max=START_S))
    yield made
    await made.close()


async def verify_in_sandbox(sandboxes: SandboxPool, find: Callable[[VerificationInput], Any]) -> VerificationResult:
    async with asyncio.timeout(2 * START_S):
        return await sandboxes.run(ProofMethod("", find), CASE)


@pytest.mark.parametrize(
    ("find", "says"),
    [
        (verification_inputs.crashes, "its process was ended by SIGSEGV"),
        (verification_inputs.leaves, "its process ended with 3"),
        (verification_inputs.eats_memory, "it took more memory than it may"),
        (verification_inputs.raises, "it raised ValueError: not my kind of proof"),
        (verification_inputs.answers_nonsense, "it answered with a str"),
    ],
)
async def test_a_verifier_that_misbehaves_is_reported_by_name_and_the_next_one_is_served(
    sandboxes: SandboxPool, find: Callable[[VerificationInput], Any], says: str
) -> None:
    with pytest.raises(SandboxFailed, match=says):
        await verify_in_sandbox(sandboxes, find)
    assert (await verify_in_sandbox(sandboxes, verification_inputs.says_yes)).is_good


async def test_a_verifier_that_hangs_is_killed_when_its_time_is_over() -> None:
    made = SandboxPool(1, SandboxLimits(seconds_max=0.2, memory_mib_max=512, start_s_max=START_S))
    with pytest.raises(SandboxFailed, match=r"it took longer than 0\.2 s"):
        await verify_in_sandbox(made, verification_inputs.hangs)
    await made.close()


async def test_a_process_is_used_again_and_is_not_the_nodes_own(sandboxes: SandboxPool) -> None:
    import os

    first, second = (
        await verify_in_sandbox(sandboxes, verification_inputs.says_yes),
        await verify_in_sandbox(sandboxes, verification_inputs.says_yes),
    )
    assert first == second
    assert first.reasons != f"seen by {os.getpid()}"


async def test_closing_does_not_wait_for_a_verifier_that_hangs() -> None:
    made = SandboxPool(1, SandboxLimits(seconds_max=600.0, memory_mib_max=512, start_s_max=START_S))
    await verify_in_sandbox(made, verification_inputs.says_yes)
    waiting = asyncio.create_task(verify_in_sandbox(made, verification_inputs.hangs))
    async with asyncio.timeout(START_S):
        while not made._free.empty():  # the only process is asked now
            await asyncio.sleep(0.005)
    async with asyncio.timeout(START_S):
        await made.close()
        with pytest.raises(SandboxFailed):
            await waiting


async def test_a_process_that_cannot_be_started_is_reported_and_the_next_one_starts(
    sandboxes: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    with monkeypatch.context() as broken:
        broken.setattr(SpawnProcess, "start", fail)
        for _ in range(2):
            with pytest.raises(SandboxFailed, match="its process did not start: Resource temporarily unavailable"):
                await verify_in_sandbox(sandboxes, verification_inputs.says_yes)
    assert (await verify_in_sandbox(sandboxes, verification_inputs.says_yes)).is_good


async def test_a_process_that_ends_before_it_is_ready_is_reported_by_name(
    sandboxes: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("holdfast.system.child_process._serve", verification_inputs.ends_at_once)
        with pytest.raises(SandboxFailed, match="its process did not start"):
            await verify_in_sandbox(sandboxes, verification_inputs.says_yes)
    assert (await verify_in_sandbox(sandboxes, verification_inputs.says_yes)).is_good
