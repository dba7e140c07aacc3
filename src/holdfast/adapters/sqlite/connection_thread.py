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

from holdfast.core.base.errors import Corrupt, Unavailable

T = TypeVar("T")
_DAMAGE = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, UnicodeDecodeError)
_SCHEMA_DAMAGE = re.compile(r"no such (table|column|index)|already exists|no column named|has \d+ columns")
"""Our statements are fixed: if SQLite reports one of these, the schema is not ours any more."""
_Call = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class ConnectionThread:
    """Runs calls one after the other and returns each result to the event loop of its caller.

    Errors of SQLite get the name of the file and, for damage, the hint `if_damaged`.
    """

    def __init__(self, name: str, file: Path, if_damaged: str) -> None:
        self._file, self._if_damaged = file, if_damaged
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in the thread. Cancelling the caller does not stop it: a commit in progress is not undone."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put((work, future))
        return await future

    async def close(self) -> None:
        """Finish the waiting calls, then end the thread."""
        self._calls.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            work, future = call
            fault: BaseException | None
            try:
                result, fault = work(), None
            except (apsw.Error, OSError, UnicodeDecodeError) as error:
                result, fault = None, self._translate_error(error)
            except BaseException as error:
                result, fault = None, error
            _resolve(future, result, fault)

    def _translate_error(self, error: Exception) -> Exception:
        if isinstance(error, _DAMAGE) or (isinstance(error, apsw.SQLError) and _SCHEMA_DAMAGE.search(str(error))):
            return Corrupt("ENG-003", f"{self._file} is damaged: SQLite: {error}", self._if_damaged)
        is_full = isinstance(error, apsw.FullError) or getattr(error, "errno", None) == ENOSPC
        hint = "the disk is full" if is_full else "check the disk and the file's permissions"
        if isinstance(error, OSError):
            return Unavailable("ENG-002", f"{error.filename or self._file}: {error.strerror or error}", hint)
        return Unavailable("ENG-002", f"{self._file}: SQLite: {error}", hint)


def _resolve(future: asyncio.Future[Any], result: object, fault: BaseException | None) -> None:
    def resolve() -> None:
        if future.done():
            return
        if fault is None:
            future.set_result(result)
        else:
            future.set_exception(fault)

    loop = future.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(resolve)
