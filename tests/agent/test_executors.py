"""Executors: what comes out, what becomes of faults, crashes and too much time, and that nobody is left running."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.agent.house import comes

from holdfast.agent.execute import Failed, execute
from holdfast.agent.executors import BUILT_IN, Cancel, Echo, Registry, Sleep, Where, built_in
from holdfast.core.canon import canonical
from holdfast.core.job.spec import Ordered, Payload
from holdfast.core.refusal import Refused
from holdfast.core.values import Kind

PROMPT = {"kind": "AI", "spec": {"model": "echo", "prompt": "hello"}}
LONG_MS = 60_000


def payload(**spec: Any) -> Ordered:
    return Ordered(Kind.AI, spec)


class Acting(msgspec.Struct, frozen=True):
    """Does what its prompt says."""

    where: Where = Where.PROCESS

    def run(self, payload: Payload, cancel: Cancel) -> bytes:
        match payload.spec["prompt"]:
            case "crash":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(3)
            case "raise":
                raise ArithmeticError("it does not add up")
            case "text":
                return "text"  # type: ignore[return-value]
            case "hang":
                note = Path(payload.spec["file"])
                half = note.with_suffix(".half")
                half.write_text(str(os.getpid()))
                half.rename(note)  # whoever finds it finds all of it
                while not cancel.wait(0.01):
                    pass
        return str(os.getpid()).encode()


async def test_echo_gives_back_the_canonical_bytes_of_what_it_was_given() -> None:
    assert await execute(Echo(), payload(prompt="hé"), LONG_MS) == canonical("hé")
    assert await execute(Echo(), payload(input="blob:1"), LONG_MS) == canonical("blob:1")


async def test_sleep_takes_its_time_and_says_the_same() -> None:
    begun = time.monotonic()
    assert await execute(Sleep(), payload(prompt="x", params={"ms": 30}), LONG_MS) == canonical("x")
    assert time.monotonic() - begun >= 0.03


@pytest.mark.parametrize("ms", ["soon", -1, True])
async def test_sleep_refuses_what_is_no_time(ms: object) -> None:
    failed = await execute(Sleep(), payload(prompt="x", params={"ms": ms}), LONG_MS)
    assert isinstance(failed, Failed)
    assert "params.ms" in failed.reason


@pytest.mark.parametrize("where", list(Where))
async def test_a_fault_is_a_failure_with_a_reason(where: Where) -> None:
    failed = await execute(Acting(where), payload(prompt="raise"), LONG_MS)
    assert failed == Failed("EXECUTOR_ERROR: ArithmeticError: it does not add up")


async def test_an_output_that_is_no_bytes_is_a_failure() -> None:
    failed = await execute(Acting(Where.THREAD), payload(prompt="text"), LONG_MS)
    assert failed == Failed("EXECUTOR_ERROR: it returned str, not bytes")


async def test_a_process_of_its_own_is_another_process() -> None:
    output = await execute(Acting(), payload(prompt="work"), LONG_MS)
    assert isinstance(output, bytes)
    assert int(output) != os.getpid()


@pytest.mark.parametrize(("prompt", "code"), [("crash", -9), ("exit", 3)])
async def test_a_crash_takes_only_its_own_process_with_it(prompt: str, code: int) -> None:
    failed = await execute(Acting(), payload(prompt=prompt), LONG_MS)
    assert failed == Failed(f"EXECUTOR_CRASHED: exit code {code}")


@pytest.mark.parametrize("where", list(Where))
async def test_work_that_takes_too_long_is_ended(where: Where, tmp_path: Path) -> None:
    file, threads = tmp_path / "pid", threading.active_count()
    failed = await execute(Acting(where), payload(prompt="hang", file=str(file)), 1_000)
    assert failed == Failed("TIME_OUT: not done after 1000 ms")
    await comes(lambda: threading.active_count() <= threads, "its thread has ended")
    if where is Where.PROCESS and file.exists():
        assert not Path(f"/proc/{file.read_text()}").exists()


@pytest.mark.parametrize("where", list(Where))
async def test_work_that_nobody_wants_any_more_is_ended(where: Where, tmp_path: Path) -> None:
    file, threads = tmp_path / "pid", threading.active_count()
    running = asyncio.create_task(execute(Acting(where), payload(prompt="hang", file=str(file)), LONG_MS))
    await comes(file.exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await comes(lambda: threading.active_count() <= threads, "its thread has ended")
    if where is Where.PROCESS:
        assert not Path(f"/proc/{file.read_text()}").exists()


async def test_work_that_is_cancelled_before_it_began_never_begins(tmp_path: Path) -> None:
    threads = threading.active_count()
    running = asyncio.create_task(execute(Acting(), payload(prompt="hang", file=str(tmp_path / "pid")), LONG_MS))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await comes(lambda: threading.active_count() <= threads)


# ------------------------------------------------------------------------------------------------ choosing


class Circuits(msgspec.Struct, frozen=True):
    """What another executor of circuits looks like."""

    where: Where = Where.THREAD

    @property
    def capability(self) -> dict[str, Any]:
        return {"gates": ["h", "cx"], "depth_max": 10, "width_max": 4}

    def run(self, payload: Payload, cancel: Cancel) -> bytes:
        return b""


def test_the_model_that_is_asked_for_runs_the_job() -> None:
    registry = Registry(BUILT_IN)
    found = registry.find("AI", canonical(PROMPT))
    assert not isinstance(found, Refused)
    assert found[0] == Echo()
    assert found[1].spec["prompt"] == "hello"


def test_another_kind_plugs_in() -> None:
    registry = Registry({**BUILT_IN, (Kind.QUANTUM, "circuit"): Circuits()})
    quantum = {"gates": ["h", "cx"], "depth_max": 10, "width_max": 4}
    assert registry.capabilities() == {"AI": {"models": ["digits", "echo", "sleep"]}, "QUANTUM": quantum}
    spec = {"circuit": "OPENQASM 3;", "shots": 1, "width": 1, "depth": 1}
    found = registry.find("QUANTUM", canonical({"kind": "QUANTUM", "spec": spec}))
    assert not isinstance(found, Refused)
    assert found[0] == Circuits()


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("AI", canonical({"kind": "AI", "spec": {"model": "gpt", "prompt": "x"}})),
        ("QUANTUM", canonical(PROMPT)),
        ("AI", b"\xff"),
        ("AI", canonical([1])),
    ],
)
def test_what_is_not_offered_is_refused(kind: str, raw: bytes) -> None:
    assert isinstance(Registry(BUILT_IN).find(kind, raw), Refused)


def test_an_unknown_model_is_named_beside_those_there_are() -> None:
    no = built_in(["echo", "gpt"])
    assert isinstance(no, Refused)
    assert (no.says, no.hint) == ("model: no executor gpt", "there are: digits, echo, sleep")
    some = built_in(["echo"])
    assert isinstance(some, Registry)
    assert some.capabilities() == {"AI": {"models": ["echo"]}}
