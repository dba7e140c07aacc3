"""One thread that owns one SQLite connection, so that no commit ever blocks the event loop."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import apsw

from holdfast.core.refusal import Corrupt, Unavailable

T = TypeVar("T")
_DAMAGE = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, UnicodeDecodeError)
_NOT_OURS = re.compile(r"no such (table|column|index)|already exists|no column named|has \d+ columns")
"""Our statements are fixed: where SQLite says this of one, the schema is not what we made it."""
_Job = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class Worker:
    """Runs what it is given one after the other and answers on the loop that asked.

    What SQLite says is told with the file it speaks of and with what can be done about damage to that file.
    """

    def __init__(self, name: str, file: Path, if_damaged: str) -> None:
        self._file, self._if_damaged = file, if_damaged
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
            except (apsw.Error, OSError, UnicodeDecodeError) as error:
                result, fault = None, self._named(error)
            except BaseException as error:
                result, fault = None, error
            _answer(future, result, fault)

    def _named(self, error: Exception) -> Exception:
        if isinstance(error, _DAMAGE) or (isinstance(error, apsw.SQLError) and _NOT_OURS.search(str(error))):
            return Corrupt("ENG-003", f"{self._file} is damaged: SQLite: {error}", self._if_damaged)
        is_full = isinstance(error, apsw.FullError) or getattr(error, "errno", None) == ENOSPC
        hint = "the disk is full" if is_full else "check the disk and the file's permissions"
        if isinstance(error, OSError):
            return Unavailable("ENG-002", f"{error.filename or self._file}: {error.strerror or error}", hint)
        return Unavailable("ENG-002", f"{self._file}: SQLite: {error}", hint)


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
