"""Two owners that race for one queue on PostgreSQL: each can be held just before it writes, and cut off meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final

import msgspec
from tests.core.blocks import SEAL
from tests.core.commands import some_id
from tests.core.core_driver import YEAR_MS, public
from tests.core.fleet import CAPABILITIES, LENIENT
from tests.postgres.server import Address
from tests.simulation.world import DEVELOPMENT, SimulatedFiles, stop_engine

from holdfast.adapters.clock import MachineClock
from holdfast.adapters.postgres.journal import PostgresJournal
from holdfast.adapters.postgres.tables import PostgresTables
from holdfast.core.base.errors import Fenced, Unavailable
from holdfast.core.base.event import Attachment, Batch, Command
from holdfast.core.base.values import AccountId, Amount
from holdfast.core.chain.messages import EvictFinalTxs
from holdfast.core.escrow.messages import Mint
from holdfast.core.lease.messages import DeclineLease, FailLease
from holdfast.core.lease.model import Lease
from holdfast.core.policy import ChainPolicy, LeasePolicy, QuotaPolicy, RetryPolicy
from holdfast.core.policy_change.messages import AdoptPolicy
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.provider.messages import Heartbeat, Register, Stake
from holdfast.core.provider.model import provider_id
from holdfast.core.result import result_digest
from holdfast.core.workflows.finalize import has_evictable_txs
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import EngineStatus
from holdfast.workers.dispatcher import Dispatcher

ALICE: Final = AccountId("alice")
PROVIDERS: Final = 5
LEASES_PER_RUN: Final = 64
BRISK: Final = msgspec.structs.replace(
    DEVELOPMENT,
    chain=ChainPolicy(finality_depth=2),
    lease=LeasePolicy(ack_timeout_ms=180_000, decline_cooldown_ms=0),
    retry=RetryPolicy(base_ai_ms=1, base_quantum_ms=1, cap_ms=20, failures_max=1_000),
    provider=msgspec.structs.replace(LENIENT, provider_fail_decay_ppm=0),
    quota=QuotaPolicy(leases_per_provider_max=50, ai_units_per_epoch=10**9, quantum_units_per_epoch=10**9),
)
"""Leases outlive every pause, who fails is forgiven, and what failed is tried again at once."""


class BriskClock(MachineClock):
    """Real time with short pauses before a retry."""

    async def sleep(self, ms: int) -> None:
        await super().sleep(min(ms, 20))


class Gate:
    """Where a node stands still when it is held; what it was about to write is remembered."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self.held: Batch | None = None

    def close(self) -> None:
        self.held = None
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def __call__(self, batch: Batch | None = None) -> None:
        if not self._open.is_set() and batch is not None:
            self.held = batch
        await self._open.wait()


class GatedJournal(PostgresJournal):
    """The real one, behind a gate."""

    def __init__(self, address: Address, gate: Gate) -> None:
        super().__init__(*address, lock_wait_s=0.02)
        self._gate = gate

    async def acquire(self) -> Any:
        await self._gate()
        return await super().acquire()

    async def append(self, batch: Batch, attachments: Sequence[Attachment]) -> None:
        await self._gate(batch)
        await super().append(batch, attachments)

    async def lose_the_lock(self) -> None:
        """What a pooler between node and server might do: the connection is there, its lock is not."""
        assert self._appender is not None
        await self._appender.connection.execute("SELECT pg_advisory_unlock_all()")

    @property
    def backend(self) -> int | None:
        return self._appender.connection.get_server_pid() if self._appender is not None else None


class GatedTables(PostgresTables):
    """The real ones, behind the same gate: a paused node writes nothing at all."""

    def __init__(self, address: Address, gate: Gate) -> None:
        super().__init__(*address, lock_wait_s=0.02)
        self._gate = gate

    async def open(self) -> Any:
        await self._gate()
        return await super().open()

    async def write(self, *args: Any, **options: Any) -> None:
        await self._gate()
        await super().write(*args, **options)

    @property
    def backend(self) -> int | None:
        is_there = self._writer is not None and not self._writer.is_closed()
        return self._writer.get_server_pid() if is_there and self._writer is not None else None


class CompetingOwner:
    """A node that owns whenever it can: it dispatches while it does, and where it was replaced it begins anew."""

    def __init__(self, name: str, address: Address) -> None:
        self.name, self._address = name, address
        self.gate = Gate()
        self.fenced = 0
        self._random = Random(name)
        self._new()

    def _new(self) -> None:
        self.journal, self.tables = GatedJournal(self._address, self.gate), GatedTables(self._address, self.gate)
        self.engine = Engine(self.journal, self.tables, SimulatedFiles(), BriskClock(), BRISK, self.name)

    @property
    def is_owner(self) -> bool:
        """As far as it knows."""
        return self.engine.status is EngineStatus.RUNNING

    @property
    def backends(self) -> list[int]:
        return [pid for pid in (self.journal.backend, self.tables.backend) if pid is not None]

    async def live(self) -> None:
        """For ever: stand by, own, be replaced."""
        while True:
            with suppress(Unavailable):
                await self._stand_by()
                await self._own()
            await stop_engine(self.engine)
            self._new()

    async def _stand_by(self) -> None:
        while True:
            try:
                return await self.engine.start()
            except Unavailable:
                await asyncio.sleep(0.01)

    async def _own(self) -> None:
        """Fenced is for good, for this incarnation; anything less the engine deals with itself."""
        duties = [asyncio.create_task(each) for each in (Dispatcher(self.engine).run(), self._work())]
        try:
            await self.engine.wait_ended()
        finally:
            self.fenced += isinstance(self.engine.fault, Fenced)
            for duty in duties:
                duty.cancel()
            await asyncio.gather(*duties, return_exceptions=True)

    # ------------------------------------------------------------------------------------ what its providers do

    async def _work(self) -> None:
        """They submit, decline and fail; sometimes a block is sealed, so that seeds change."""
        while True:
            await asyncio.sleep(0.002)
            leases = [each for each in self.engine.undurable_state.leases.by_id.values() if each.submitted is None][
                :LEASES_PER_RUN
            ]
            commands = [command for lease in leases for command in self._commands_for(lease)]
            if self._random.random() < 0.05:
                commands.append(SEAL)
            if has_evictable_txs(self.engine.undurable_state, as_of := self.engine.tables_progress.checkpoint.last):
                commands.append(EvictFinalTxs(as_of))
            with suppress(Unavailable):
                await self.engine.submit_many(commands)

    def _commands_for(self, lease: Lease) -> Iterator[Command]:
        chance = self._random.random()
        if chance < 0.1:
            yield DeclineLease(lease.id, lease.provider_id)
        elif chance < 0.2:
            yield FailLease(lease.id, lease.provider_id, "broken")
        else:
            body = body_of(lease.job_id, lease.id, lease.provider_id, result_digest(b"out"), 3, {"ms": 5})
            yield SubmitCompletion(lease.id, lease.provider_id, Envelope(1, "attested", body, b"s" * 64))
            yield RecordVerdict(lease.id, True)


async def set_up(engine: Engine, jobs: int) -> None:
    """A requester with money and providers with free slots; set up once, repeats change nothing."""
    commands: list[Command] = [AdoptPolicy(BRISK), Mint(some_id(1), ALICE, Amount(jobs * 200))]
    for number in range(1, PROVIDERS + 1):
        account, id_ = AccountId(f"provider-{number}"), provider_id(public(number))
        told = (f"p{number}", account, CAPABILITIES, "eu", 3, 20, engine.now_ms() + YEAR_MS)
        commands += [
            Register(public(number), *told),
            Mint(some_id(10 + number), account, Amount(100_000)),
            Stake(id_, Amount(70_000), some_id(20 + number)),
            Heartbeat(id_, 20),
        ]
    await engine.submit_many(commands)
