"""Executors: their output, faults, crashes and time-outs, and that no process or thread is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest
from tests.agent.in_process_agent import wait_until

from holdfast.agent.executors.built_in import BUILT_IN, Echo, Sleep, built_in_executors
from holdfast.agent.executors.contract import CancelSignal, ExecutorIsolation, media_type_of
from holdfast.agent.executors.execute import Failed, execute
from holdfast.agent.executors.registry import ExecutorRegistry
from holdfast.agent.executors.thread_pool import ThreadPool
from holdfast.core.base.canonical import canonical
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Kind
from holdfast.core.job.spec import Payload, WorkPayload

PROMPT = {"kind": "AI", "spec": {"model": "echo", "prompt": "hello"}}
LONG_MS = 60_000
CANCELLABLE = [ExecutorIsolation.THREAD, ExecutorIsolation.PROCESS]


def payload(**spec: Any) -> WorkPayload:
    return WorkPayload(Kind.AI, spec)


class PromptedExecutor(msgspec.Struct, frozen=True):
    """Does what its prompt says."""

    isolation: ExecutorIsolation = ExecutorIsolation.PROCESS

    def run(self, payload: Payload, cancel: CancelSignal) -> bytes:
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


async def test_echo_gives_back_the_text_it_was_given() -> None:
    assert await execute(Echo(), payload(prompt="hé"), LONG_MS) == "hé".encode()
    assert await execute(Echo(), payload(input="blob:1"), LONG_MS) == b"blob:1"


class Declares(msgspec.Struct):
    """An executor with another declaration."""

    said: object

    def media_type(self, _: WorkPayload) -> object:
        return self.said


@pytest.mark.rule("RES-009")
def test_an_executor_declares_the_media_type_of_its_output() -> None:
    job, of_map = payload(model="echo", prompt="hi"), payload(model="echo", input={"a": 1})
    known = {name: media_type_of(executor, job) for (_, name), executor in BUILT_IN.items()}
    text, cbor = "text/plain; charset=utf-8", "application/cbor"
    assert known == {"digits": cbor, "echo": text, "sleep": text, "circuit": cbor}
    assert media_type_of(Echo(), of_map) == cbor
    for no in ("", "text", "a/b\r\nc: d", 3, None):
        assert media_type_of(Declares(no), job) == ""  # type: ignore[arg-type]


async def test_work_of_microseconds_takes_no_thread() -> None:
    threads = threading.active_count()
    output = await execute(PromptedExecutor(ExecutorIsolation.INLINE), payload(prompt="work"), LONG_MS)
    assert output == str(os.getpid()).encode()
    assert threading.active_count() == threads


def test_threads_are_used_again_and_one_that_never_ends_blocks_no_other() -> None:
    pool, hang = ThreadPool(idle_s=60), threading.Event()
    pool.run(partial(wait_for, hang))
    seen = SimpleQueue[int]()
    first = pool_ident(pool, seen)
    for _ in range(5):
        while not pool._idle:
            time.sleep(0.001)
        assert pool_ident(pool, seen) == first
    hang.set()


def wait_for(event: threading.Event) -> None:
    event.wait(60)


def pool_ident(pool: ThreadPool, seen: SimpleQueue[int]) -> int:
    pool.run(lambda: seen.put(threading.get_ident()))
    return seen.get(timeout=60)


async def test_sleep_takes_its_time_and_returns_the_same() -> None:
    begun = time.monotonic()
    assert await execute(Sleep(), payload(prompt="x", params={"ms": 30}), LONG_MS) == b"x"
    assert time.monotonic() - begun >= 0.03


@pytest.mark.parametrize("ms", ["soon", -1, True])
async def test_sleep_refuses_what_is_no_time(ms: object) -> None:
    failed = await execute(Sleep(), payload(prompt="x", params={"ms": ms}), LONG_MS)
    assert isinstance(failed, Failed)
    assert "params.ms" in failed.reason


@pytest.mark.parametrize("where", [each for each in ExecutorIsolation if each is not ExecutorIsolation.ASYNC])
async def test_a_fault_is_a_failure_with_a_reason(where: ExecutorIsolation) -> None:
    failed = await execute(PromptedExecutor(where), payload(prompt="raise"), LONG_MS)
    assert failed == Failed("EXECUTOR_ERROR: ArithmeticError: it does not add up")


@pytest.mark.parametrize("where", [each for each in ExecutorIsolation if each is not ExecutorIsolation.ASYNC])
async def test_an_output_that_is_no_bytes_is_a_failure(where: ExecutorIsolation) -> None:
    failed = await execute(PromptedExecutor(where), payload(prompt="text"), LONG_MS)
    assert failed == Failed("EXECUTOR_ERROR: it returned str, not bytes")


async def test_a_process_of_its_own_is_another_process() -> None:
    output = await execute(PromptedExecutor(), payload(prompt="work"), LONG_MS)
    assert isinstance(output, bytes)
    assert int(output) != os.getpid()


@pytest.mark.parametrize(("prompt", "code"), [("crash", -9), ("exit", 3)])
async def test_a_crash_takes_only_its_own_process_with_it(prompt: str, code: int) -> None:
    failed = await execute(PromptedExecutor(), payload(prompt=prompt), LONG_MS)
    assert failed == Failed(f"EXECUTOR_CRASHED: exit code {code}")


@pytest.mark.parametrize("where", CANCELLABLE)
async def test_work_that_takes_too_long_is_ended(where: ExecutorIsolation, tmp_path: Path) -> None:
    file, threads = tmp_path / "pid", threading.active_count()
    failed = await execute(PromptedExecutor(where), payload(prompt="hang", file=str(file)), 1_000)
    assert failed == Failed("TIME_OUT: not done after 1000 ms")
    await wait_until(lambda: threading.active_count() <= threads, "its thread has ended")
    if where is ExecutorIsolation.PROCESS and file.exists():
        await wait_until(lambda: not Path(f"/proc/{file.read_text()}").exists(), "its process has ended")


@pytest.mark.parametrize("where", CANCELLABLE)
async def test_work_that_is_cancelled_is_ended(where: ExecutorIsolation, tmp_path: Path) -> None:
    file, threads = tmp_path / "pid", threading.active_count()
    running = asyncio.create_task(execute(PromptedExecutor(where), payload(prompt="hang", file=str(file)), LONG_MS))
    await wait_until(file.exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await wait_until(lambda: threading.active_count() <= threads, "its thread has ended")
    if where is ExecutorIsolation.PROCESS:
        await wait_until(lambda: not Path(f"/proc/{file.read_text()}").exists(), "its process has ended")


async def test_work_that_is_cancelled_before_it_began_never_begins(tmp_path: Path) -> None:
    threads = threading.active_count()
    running = asyncio.create_task(
        execute(PromptedExecutor(), payload(prompt="hang", file=str(tmp_path / "pid")), LONG_MS)
    )
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await wait_until(lambda: threading.active_count() <= threads)


# ------------------------------------------------------------------------------------------------ choosing


class CircuitExecutor(msgspec.Struct, frozen=True):
    """What another executor of circuits looks like."""

    isolation: ExecutorIsolation = ExecutorIsolation.THREAD

    @property
    def capability(self) -> dict[str, Any]:
        return {"gates": ["h", "cx"], "depth_max": 10, "width_max": 4}

    def run(self, payload: Payload, cancel: CancelSignal) -> bytes:
        return b""


def test_the_model_that_is_asked_for_runs_the_job() -> None:
    registry = ExecutorRegistry(BUILT_IN)
    found = registry.find("AI", canonical(PROMPT))
    assert not isinstance(found, Refused)
    assert found[0] == Echo()
    assert found[1].spec["prompt"] == "hello"


def test_another_kind_plugs_in() -> None:
    registry = ExecutorRegistry({**BUILT_IN, (Kind.QUANTUM, "circuit"): CircuitExecutor()})
    quantum = {"gates": ["h", "cx"], "depth_max": 10, "width_max": 4}
    assert registry.capabilities() == {"AI": {"models": ["digits", "echo", "sleep"]}, "QUANTUM": quantum}
    spec = {"circuit": "OPENQASM 3;", "shots": 1, "width": 1, "depth": 1}
    found = registry.find("QUANTUM", canonical({"kind": "QUANTUM", "spec": spec}))
    assert not isinstance(found, Refused)
    assert found[0] == CircuitExecutor()


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
    assert isinstance(ExecutorRegistry(BUILT_IN).find(kind, raw), Refused)


def test_an_unknown_model_is_named_beside_those_there_are() -> None:
    no = built_in_executors(["echo", "gpt"])
    assert isinstance(no, Refused)
    assert (no.message, no.hint) == ("model: no executor gpt", "there are: digits, echo, sleep")
    some = built_in_executors(["echo"])
    assert isinstance(some, ExecutorRegistry)
    assert some.capabilities() == {"AI": {"models": ["echo"]}}
