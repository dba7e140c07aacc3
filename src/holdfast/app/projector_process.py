"""The projector in a process of its own (ENG-004): spawned by its node, ended with it, restarted when it dies.

The pipe carries no facts. From the node comes a byte that somebody waits for the tables; back comes how far they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Final

import structlog

from holdfast.adapters.clock import MachineClock
from holdfast.app.stores import make_full_journal, make_stores, snapshot_folder
from holdfast.config import Config
from holdfast.core.base.event import JournalHead
from holdfast.engine.projection.projector import Projector
from holdfast.system.child_process import OWN_PIPE, CallFailed, ChildEnded, ChildProcess, exit_with_parent
from holdfast.system.interpreter import tune_collector
from holdfast.system.malloc_arenas import limit_malloc_arenas

RESTART_S: Final = 1.0
END_S: Final = 10.0
"""How long a projector may take to finish its transaction when its node stops."""
_FLUSH: Final = "flush"
_log = structlog.get_logger()


class ProjectorProcess:
    """Keeps one projector running in a child process."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.on_written: Callable[[JournalHead], None] = lambda _: None
        self._child: ChildProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False
        """Between the end of one child and the start of the next."""
        self.restarts = 0

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._has_failed

    @property
    def process_id(self) -> int | None:
        return self._child.process_id if self._child is not None else None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._keep_running(), name="projector")

    def request_flush(self) -> None:
        if self._child is not None:
            with suppress(OSError):
                self._child.send(_FLUSH)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _keep_running(self) -> None:
        while True:
            child = ChildProcess("spawn", exit_with_parent)
            try:
                await asyncio.to_thread(child.start)
                self._child = child
                await self._listen(child)
            except (ChildEnded, CallFailed, OSError) as fault:
                log = _log.info if isinstance(fault, ChildEnded) and fault.exit_code == 0 else _log.error
                log("projector_ended", reason=str(fault), restart_s=RESTART_S)
            finally:
                self._child = None
                await asyncio.shield(asyncio.to_thread(_end, child))
            self._has_failed = True
            self.restarts += 1
            await asyncio.sleep(RESTART_S)
            self._has_failed = False

    async def _listen(self, child: ChildProcess) -> None:
        """Take its reports until it ends."""
        child.begin(run_projector, OWN_PIPE, self._config)
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(child.fileno(), readable.set)
        try:
            while True:
                await readable.wait()
                readable.clear()
                while (message := child.take_message()) is not None:
                    self.on_written(message)
        finally:
            loop.remove_reader(child.fileno())


def _end(child: ChildProcess) -> None:
    """Let it finish its transaction, then be sure that it is gone: the next one needs the tables' lock."""
    child.hang_up()
    child.join(END_S)
    child.close()


# ------------------------------------------------------------------------------------------------ in the child


def run_projector(pipe: Connection, config: Config) -> None:
    """Project until the node closes the pipe, or ownership is taken again.

    The second is for a node that hangs and was replaced (ENG-008): its projector must not keep the tables' lock.
    """
    limit_malloc_arenas()
    tune_collector()
    asyncio.run(_run_projector(pipe, config))


async def _run_projector(pipe: Connection, config: Config) -> None:
    store, tables = make_stores(config)
    journal = make_full_journal(config, store)
    closed, term = asyncio.Event(), (await journal.tip()).term

    def report(checkpoint: JournalHead) -> None:
        if checkpoint.term > term:
            closed.set()
        else:
            pipe.send(checkpoint)

    projector = Projector(journal, tables, snapshot_folder(config), config.policy, MachineClock(), report)
    running = asyncio.create_task(projector.run())

    def hear() -> None:
        try:
            pipe.recv()
            projector.request_flush()
        except (EOFError, OSError):
            closed.set()
            asyncio.get_running_loop().remove_reader(pipe.fileno())

    asyncio.get_running_loop().add_reader(pipe.fileno(), hear)
    waiting = asyncio.create_task(closed.wait())
    try:
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
    finally:
        for task in (running, waiting):
            task.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        await tables.close()
        await journal.close()
