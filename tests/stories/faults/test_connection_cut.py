"""A proxy between node and server that cuts the line at any message, before or after it was passed on."""

from __future__ import annotations

import asyncio
import re
from random import Random

import pytest
from tests.core.commands import some_id
from tests.counts import counts
from tests.postgres.server import Address
from tests.simulation.world import DEVELOPMENT, stop_engine
from tests.storage.stores import Place

from holdfast.adapters.clock import MachineClock
from holdfast.adapters.files import AtomicFolder
from holdfast.adapters.postgres.journal import PostgresJournal
from holdfast.adapters.postgres.tables import PostgresTables
from holdfast.core import journal_codec
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import AccountId, Amount, BatchNo
from holdfast.core.escrow.messages import Mint
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted, EngineStatus

ALICE = AccountId("alice")


class MessageCountingProxy:
    """Passes bytes on, counts the messages, and cuts every line at the one it is told."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._lines: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0
        self.cut_in: int | None = None
        """How many more messages pass before the cut; None for no cut."""
        self.passes_last = False
        """Whether the message at which the line is cut still arrives: then its sender cannot know."""

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.sleep(0)

    def cut(self) -> None:
        self.cut_in = None
        for line in list(self._lines):
            line.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there = await asyncio.open_connection("127.0.0.1", self._target)
        self._lines |= {writer, there}
        ways = [asyncio.create_task(self._pass(reader, there)), asyncio.create_task(self._pass(there_reader, writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for end in (writer, there):
            end.transport.abort()
        await asyncio.gather(*ways, return_exceptions=True)
        self._lines -= {writer, there}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while raw := await reader.read(65_536):
            if self.cut_in is not None:
                self.cut_in -= 1
                if self.cut_in <= 0:
                    if self.passes_last:
                        writer.write(raw)
                        await writer.drain()
                    self.cut()
                    return
            writer.write(raw)
            await writer.drain()


def engine_at(address: Address, place: Place) -> Engine:
    journal, tables = PostgresJournal(*address, lock_wait_s=5.0), PostgresTables(*address, lock_wait_s=5.0)
    return Engine(journal, tables, AtomicFolder(place.folder / "snapshots"), MachineClock(), DEVELOPMENT)


async def submit_until_done(engine: Engine, command: Mint) -> Accepted:
    """Ask until there is an answer, with the same id."""
    while True:
        try:
            outcome = await engine.submit(command)
        except Unavailable:
            assert engine.status is not EngineStatus.FAILED, engine.fault
            await asyncio.sleep(0.01)
            continue
        assert isinstance(outcome, Accepted)
        return outcome


@pytest.mark.rule("ENG-002")
async def test_a_connection_cut_at_any_message_loses_nothing_and_repeats_nothing(place: Place) -> None:
    random, straight = Random(4), place.address
    proxy = MessageCountingProxy(place.server().port)
    await proxy.open()
    engine = engine_at(Address(re.sub(r":\d+/", f":{proxy.port}/", straight.dsn), straight.schema), place)
    await engine.start()
    cuts = counts(20, 400)
    for number in range(1, cuts + 1):
        proxy.cut_in, proxy.passes_last = number % 23 + 1, random.random() < 0.5
        while proxy.cut_in is not None:  # until the line has been cut
            await submit_until_done(engine, Mint(random.randbytes(32), ALICE, Amount(1)))
        await submit_until_done(engine, Mint(some_id(number), ALICE, Amount(1_000)))
    assert engine.durable_head.term > 2
    live, total = digest(engine.undurable_state), engine.undurable_state.ledger.accounts[ALICE].available
    await stop_engine(engine)
    await proxy.close()

    journal = PostgresJournal(*straight)
    state, tip, mints = State(DEVELOPMENT), JournalHead(), list[bytes]()
    async for batch in journal.read(BatchNo(0)):
        mints += [event.id for event in journal_codec.unpack(batch) if hasattr(event, "id")]
        tip = journal_codec.fold(state, tip, (batch,))
    await journal.close()
    assert digest(state) == live
    assert len(mints) == len(set(mints)), "done twice"
    assert {some_id(number) for number in range(1, cuts + 1)} <= set(mints), "confirmed, yet missing"
    assert total == 1_000 * cuts + len(mints) - cuts
