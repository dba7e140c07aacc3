"""One thread that owns one SQLite connection, so that no commit ever blocks the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

import apsw

from holdfast.core.refusal import Corrupt, Unavailable

T = TypeVar("T")
_Job = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class Worker:
    """Runs what it is given one after the other and answers on the loop that asked."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def do(self, work: Callable[[], T]) -> T:
        """Run `work` in the thread. A caller that is cancelled does not stop it: a commit under way is not undone."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((work, future))
        return await future

    async def close(self) -> None:
        """Finish what was given, then end the thread."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, future = job
            fault: BaseException | None
            try:
                result, fault = work(), None
            except apsw.Error as error:
                result, fault = None, _named(error)
            except BaseException as error:
                result, fault = None, error
            _answer(future, result, fault)


def _answer(future: asyncio.Future[Any], result: object, fault: BaseException | None) -> None:
    def tell() -> None:
        if future.done():
            return
        if fault is None:
            future.set_result(result)
        else:
            future.set_exception(fault)

    loop = future.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(tell)


def _named(error: apsw.Error) -> Exception:
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return Corrupt("ENG-003", f"SQLite: {error}", "the file is damaged: restore it from a backup")
    hint = "the disk is full" if isinstance(error, apsw.FullError) else "check the disk and the file's permissions"
    return Unavailable("ENG-002", f"SQLite: {error}", hint)
