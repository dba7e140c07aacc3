"""The one place where concrete things meet: a node from its configuration."""

from __future__ import annotations

import asyncio
import gc
import signal
from pathlib import Path

import structlog

from holdfast.adapters.clock import MachineClock
from holdfast.adapters.files import Folder
from holdfast.adapters.sqlite.journal import SqliteJournal
from holdfast.adapters.sqlite.tables import SqliteTables
from holdfast.client import SOCKET
from holdfast.config import Config
from holdfast.core.refusal import Unavailable
from holdfast.doors.local import LocalDoor
from holdfast.doors.methods import Desk
from holdfast.engine.loop import Engine

_log = structlog.get_logger()


class Node:
    """An engine on its stores, with its doors: up until it is told to stop or cannot go on."""

    def __init__(self, config: Config) -> None:
        self.config = config
        prepare_folder(config.data)
        self.journal, self.tables = SqliteJournal(config.data), SqliteTables(config.data)
        snapshots = Folder(config.data / "snapshots")
        self.engine = Engine(self.journal, self.tables, snapshots, MachineClock(), config.policy, config.node)
        self.door = LocalDoor(Desk(self.engine, self.engine.submit), config.data / SOCKET)

    async def start(self) -> None:
        await self.engine.start()
        # What was loaded lives long: without it the collector would walk it again and again and stop the loop.
        gc.collect()
        gc.freeze()
        await self.door.open()
        tip = self.engine.durable
        _log.info("up", data=str(self.config.data), epoch=tip.epoch, batch=tip.number, last_event=tip.last)

    async def stop(self) -> None:
        """Let nobody in, finish what was asked, commit, project, close."""
        await self.door.close()
        await self.engine.stop()
        await self.tables.close()
        await self.journal.close()

    async def run(self) -> None:
        """Until SIGTERM or SIGINT; raises what made the engine fail."""
        await self.start()
        told = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, told.set)
        stopping, ending = asyncio.create_task(told.wait()), asyncio.create_task(self.engine.wait_ended())
        await asyncio.wait({stopping, ending}, return_when=asyncio.FIRST_COMPLETED)
        _log.info("stopping", because="told to" if told.is_set() else "the engine ended")
        stopping.cancel()
        await self.stop()
        await ending
        _log.info("stopped", last_event=self.engine.durable.last)


def prepare_folder(data: Path) -> None:
    """A folder for its user alone: journal, tables, lock and socket rely on it."""
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as fault:
        raise Unavailable("SEC-001", f"{data}: {fault.strerror}", "choose a folder that can be written") from fault
