"""Long work in a process of its own: it holds up neither the event loop nor the interpreter's lock (ENG-003)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Final, TypeVar

from holdfast.core.refusal import Unavailable

A = TypeVar("A")
T = TypeVar("T")
_SPAWN: Final = get_context("spawn")  # a fork would copy the node's locks, threads and secrets


async def apart(work: Callable[[A], T], told: A) -> T:
    """What `work` gives in another process; Unavailable where it fails. Whoever is cancelled here ends it at once."""
    ours, theirs = _SPAWN.Pipe(duplex=False)
    process = _SPAWN.Process(target=_work, args=(theirs, work, told), daemon=True)
    _start(process)
    theirs.close()
    try:
        is_done, said = await asyncio.to_thread(_hear, ours)
    finally:
        process.kill()  # it has said all it had to say, or nobody hears it any more
        await asyncio.to_thread(process.join)
    if not is_done:
        raise Unavailable("ENG-003", said or f"its process ended with {process.exitcode}")
    return said  # type: ignore[no-any-return]


def _start(process: SpawnProcess) -> None:
    """With signals held back from its first moment on: those for the node's group are the node's matter."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _hear(line: Connection) -> tuple[bool, Any]:
    with line:
        try:
            return line.recv()  # type: ignore[no-any-return]
        except (EOFError, OSError):
            return False, ""


def _work(line: Connection, work: Callable[[A], object], told: A) -> None:
    try:
        said: tuple[bool, object] = True, work(told)
    except Exception as fault:
        said = False, str(fault)
    with suppress(OSError):  # the node may be gone
        line.send(said)
