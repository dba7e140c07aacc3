"""Long work in a process of its own, so that it blocks neither the event loop nor the interpreter lock (ENG-003)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from holdfast.core.base.errors import Unavailable
from holdfast.system.child_process import CallFailed, ChildEnded, ChildProcess, exit_with_parent

A = TypeVar("A")
T = TypeVar("T")


async def run_in_process(work: Callable[[A], T], argument: A) -> T:
    """What `work` returns in another process; Unavailable if it fails. Cancelling the caller kills the process."""
    child = ChildProcess("spawn", exit_with_parent)
    running = asyncio.ensure_future(asyncio.to_thread(child.run, work, argument))
    try:
        return await asyncio.shield(running)
    except CallFailed as fault:
        raise Unavailable("ENG-003", fault.message or fault.kind) from fault
    except (ChildEnded, OSError) as fault:
        raise Unavailable("ENG-003", str(fault)) from fault
    except asyncio.CancelledError:
        child.kill()
        await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # seen, so that asyncio does not log it: the caller was cancelled
        raise
