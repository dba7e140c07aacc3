"""The one place where concrete things meet: a node from its configuration."""

from __future__ import annotations

import asyncio
import gc
import secrets
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from holdfast.adapters.apart import apart
from holdfast.adapters.clock import MachineClock
from holdfast.adapters.files import Folder
from holdfast.adapters.keys.agentkeys import AgentKeys
from holdfast.adapters.keys.certificate import TlsFiles
from holdfast.adapters.keys.signing import SigningKey, verify
from holdfast.adapters.sqlite.journal import SqliteJournal
from holdfast.adapters.sqlite.tables import SqliteTables
from holdfast.adapters.warm import WarmFolder
from holdfast.client import SOCKET, Client, NodeRefused, NodeUnreachable
from holdfast.config import Config, Store, why_not_stored
from holdfast.core.adopt import AdoptPolicy
from holdfast.core.event import Tip
from holdfast.core.refusal import Corrupt, Fenced, Refused, Unavailable
from holdfast.core.values import ProviderId
from holdfast.doors.desk import Desk, Visitor
from holdfast.doors.identify import identify
from holdfast.doors.local import LocalDoor
from holdfast.doors.methods.chain import newest
from holdfast.doors.methods.node import status
from holdfast.doors.stored import kept_records
from holdfast.doors.witness import Witness
from holdfast.duties.collector import Collector
from holdfast.duties.dispatcher import Dispatcher
from holdfast.duties.keeper import Keeper
from holdfast.duties.nurse import Nurse
from holdfast.duties.proposer import Proposer
from holdfast.duties.reaper import Reaper
from holdfast.duties.scribe import Scribe
from holdfast.duties.sexton import Sexton
from holdfast.duties.tireless import Duty, tireless
from holdfast.duties.verifier import Verifier
from holdfast.duties.weeder import Weeder
from holdfast.engine import snapshot
from holdfast.engine.follower import Follower
from holdfast.engine.longjournal import LongJournal
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Phase
from holdfast.ports import Journal, Tables
from holdfast.verifiers.cell import Cells, Limits
from holdfast.verifiers.registry import methods

if TYPE_CHECKING:
    from holdfast.agent.client import Standing
    from holdfast.agent.executors import Registry
    from holdfast.agent.runner import Agent
    from holdfast.agent.settings import AgentSettings, Tls
    from holdfast.doors.grpc.door import GrpcDoor
    from holdfast.doors.http.door import HttpDoor

LOOK_AGAIN_S: Final = 0.2
NODE_KEY: Final = "keys/node.pem"
"""Signs the blocks that this node proposes."""
HAND_ON_S: Final = 5.0
"""How long a standby waits for the owner's answer before it says that the outcome is not known."""
_log = structlog.get_logger()


class Node:
    """An engine on its stores, with its doors: up until it is told to stop or cannot go on.

    As a standby it follows the journal, answers reads, hands commands on to the owner, and becomes the owner itself
    when that one is gone (ENG-006).
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        prepare_folder(config.data)
        store, self.tables = stores(config)
        self.journal = LongJournal(store, Folder(config.data / "archive"))
        socket = (config.data / SOCKET).absolute()
        self.snapshots = Folder(config.data / "snapshots")
        parts = (self.journal, self.tables, self.snapshots, MachineClock(), config.policy)
        self.engine = Engine(*parts, config.node, str(socket))
        self.follower = Follower(*parts)
        self.desk = Desk(self.engine, self.engine.submit)
        self.door = LocalDoor(self.desk, socket)
        # On a shared folder the owner's socket is taken: a standby has one under its own name.
        self.side_door = LocalDoor(self.desk, socket.with_name(f"{config.node}.sock")) if config.standby else None
        self.desk.blobs = self.blobs = WarmFolder(config.data / "warm")
        self.http, self.grpc = http_door(config, self.desk), grpc_door(config, self.desk, self.engine, self.blobs)
        self.signer = SigningKey.load_or_create(config.data / NODE_KEY)
        self._cells: Cells | None = None
        self._ending: asyncio.Task[None] | None = None
        self._duties: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Become the owner; or, as a standby, follow the one there is."""
        if self.side_door is not None and await self.side_door.is_answered():
            says = f"another node answers at {self.side_door.path}"
            raise Unavailable("ENG-006", says, "give every node a name of its own: --node NAME")
        try:
            await self.engine.start()
        except Fenced:
            raise
        except Unavailable as fault:
            if not self.config.standby:
                raise
            _log.info("standing by", because=str(fault))
            await self._follow()
            self._ending = asyncio.create_task(self._succeed())
        else:
            await self._own()
            self._ending = asyncio.create_task(self.engine.wait_ended())
        for door in (self.side_door, self.http, self.grpc):
            if door is not None:
                await door.open()

    async def stop(self) -> None:
        """Let nobody in, finish what was asked, commit, project, close."""
        if self._ending is not None and self._cells is None:  # not the owner yet: it is not to become it now
            self._ending.cancel()
            await asyncio.gather(self._ending, return_exceptions=True)
        for door in (self.http, self.grpc, self.side_door, self.door):
            if door is not None:
                await door.close()
        for duty in self._duties:
            duty.cancel()
        await asyncio.gather(*self._duties, return_exceptions=True)
        if self._cells is not None:
            await self._cells.close()
        await self.engine.stop()
        await self.tables.close()
        await self.journal.close()

    async def run(self) -> None:
        """Until SIGTERM or SIGINT; raises what made the node fail."""
        told = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, told.set)
        stopping, starting = asyncio.create_task(told.wait()), asyncio.create_task(self.start())
        await asyncio.wait({stopping, starting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and starting.exception() is None and self._ending is not None:
            await asyncio.wait({stopping, self._ending}, return_when=asyncio.FIRST_COMPLETED)
        _log.info("stopping", because="told to" if told.is_set() else "it cannot go on")
        stopping.cancel()
        starting.cancel()  # it may take long, or wait for a store that is away
        await asyncio.wait({starting})
        await self.stop()
        with suppress(asyncio.CancelledError):
            await starting
            await (self._ending or starting)
        _log.info("stopped", last_event=self.desk.source.standing().tip.last)

    async def _own(self) -> None:
        # What was loaded lives long: without this the collector would walk it again and again and stop the loop.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000)  # rows on their way to the tables are many and in no cycle: look for those seldom
        await self._adopt()
        self.desk.source, self.desk.submit, self.desk.hand_on = self.engine, self.engine.submit, None
        self.follower.tail.close()  # nothing comes there any more: who follows it goes on with the owner's
        await self.door.open()
        every = self.config.policy.engine.snapshot_every_events
        since = await snapshot.last_event(self.snapshots, self.journal)
        keeper = Keeper(self.engine, MachineClock(), every, partial(apart, make_snapshot, self.config), since)
        proposer = Proposer(self.engine, MachineClock(), self.signer)
        dispatcher, reaper = Dispatcher(self.engine), Reaper(self.engine, MachineClock())
        nurse, told = Nurse(self.engine, MachineClock()), self.config.verifiers
        self._cells = Cells(told.processes, Limits(told.seconds_max, told.memory_mib_max))
        verifier = Verifier(self.engine, methods(verify, told), self.blobs, self._cells.find, told.tries)
        for duty in (keeper, proposer, dispatcher, reaper, nurse, verifier, Sexton(self.engine, MachineClock())):
            self._begin(duty)
        self._keep_evidence()
        self._collect()
        config, tip = self.config, self.engine.durable
        where = {"data": str(config.data), "store": config.store.value}
        _log.info("up", **where, epoch=tip.epoch, batch=tip.number, last_event=tip.last)

    def _keep_evidence(self) -> None:
        """Let go of what policy lets go of, and keep as-run logs where they are wanted."""
        self._begin(Weeder(self.engine, MachineClock()))
        folder = self.config.asrun_folder
        if folder is not None:
            self._begin(Scribe(self.engine, MachineClock(), lambda channel: Folder(folder / channel), kept_records))

    def _collect(self) -> None:
        """Retention (RET-002), by the clock and for whoever asks."""
        self.desk.collector = collector = Collector(self.engine, self.blobs, MachineClock())
        self._begin(collector)

    def _begin(self, duty: Duty) -> None:
        self._duties.append(asyncio.create_task(tireless(duty, MachineClock()), name=type(duty).__name__.lower()))

    async def _adopt(self) -> None:
        """Journal the policy of this configuration, where it is another than the last one (PRI-003)."""
        while True:
            try:
                outcome = await self.engine.submit(AdoptPolicy(self.config.policy))
            except Fenced:
                raise
            except Unavailable:
                if self.engine.phase is not Phase.RECOVERING:
                    raise
                await asyncio.sleep(LOOK_AGAIN_S)
                continue
            if isinstance(outcome, Refused):
                raise Unavailable(outcome.rule, outcome.says, outcome.hint)
            return

    async def _follow(self) -> None:
        await self.follower.load_when_made()
        self.desk.source, self.desk.hand_on = self.follower, self._hand_on

    async def _succeed(self) -> None:
        """Follow until the owner is gone, take over, and then be the owner to the end."""
        while self.engine.phase is not Phase.RUNNING:
            following = asyncio.create_task(self.follower.run())
            free = asyncio.create_task(self.journal.wait_free())
            try:
                await asyncio.wait({following, free}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                following.cancel()
                free.cancel()
                gone = await asyncio.gather(following, free, return_exceptions=True)
            if isinstance(gone[0], Corrupt):
                raise gone[0]
            try:
                await self.engine.start(self.follower)
            except Unavailable as fault:  # somebody else was faster, or the store is away: follow on
                _log.info("still standing by", because=str(fault))
                await asyncio.sleep(LOOK_AGAIN_S)
        await self._own()
        await self.engine.wait_ended()

    async def _hand_on(self, method: str, params: object, visitor: Visitor) -> Any:
        """What a follower may not decide, the owner decides for the same visitor; its answer is passed on."""
        owner = self.follower.state.owner
        if owner is None or not owner.door:
            raise Unavailable("ENG-006", "nobody owns the journal yet", "ask again in a moment")
        if self.side_door is not None and owner.door == str(self.side_door.path):
            raise Unavailable("ENG-006", f"the owner's {owner.door} is on another machine", "ask the owner itself")
        try:
            async with Client(
                Path(owner.door), patience_s=0.0, answer_within_s=HAND_ON_S
            ) as node:  # a dead one at once
                return await node.call_for(msgspec.to_builtins(visitor), method, params)
        except NodeRefused as no:
            return Refused(no.rule, no.says, no.hint, no.name, tuple(no.about.items()))
        except NodeUnreachable as fault:
            raise Unavailable("ENG-006", f"the owner does not answer: {fault}", "ask again with the same id") from fault


def http_door(config: Config, desk: Desk) -> HttpDoor | None:
    """JSON-RPC over HTTP, as configured; None where it stays shut, and its libraries are not loaded."""
    if config.http is None:
        return None
    from holdfast.doors.http.door import HttpDoor  # noqa: PLC0415

    return HttpDoor(desk, MachineClock(), config.http)


def grpc_door(config: Config, desk: Desk, engine: Engine, blobs: WarmFolder) -> GrpcDoor | None:
    """gRPC, as configured; None where it stays shut, and its libraries are not loaded."""
    told = config.grpc
    if told is None:
        return None
    from holdfast.doors.attesting import attestors  # noqa: PLC0415
    from holdfast.doors.grpc.agentdesk import AgentDesk  # noqa: PLC0415
    from holdfast.doors.grpc.door import GrpcDoor  # noqa: PLC0415
    from holdfast.doors.grpc.evidence import evidence_service  # noqa: PLC0415
    from holdfast.doors.grpc.legacy import legacy_service  # noqa: PLC0415
    from holdfast.doors.grpc.limiting import Pace  # noqa: PLC0415
    from holdfast.doors.grpc.node import Head, node_service  # noqa: PLC0415
    from holdfast.doors.grpc.provider import provider_service  # noqa: PLC0415
    from holdfast.doors.grpc.result import result_service  # noqa: PLC0415

    clock = MachineClock()

    async def who(token: str | None, _: object) -> Visitor | Refused:
        return await identify(desk, clock, token)

    async def head() -> Head:
        block = await newest(desk)
        return Head(block.height, block.hash, block.time_ms)

    files = TlsFiles(told.certificate, told.key, told.client_ca) if told.certificate and told.key else None
    agents = AgentDesk(desk, engine, blobs, verify, Pace(clock, told), attestors())
    desk.witness = witness = Witness()
    services = [
        node_service(lambda: status(desk), head),
        provider_service(agents),
        result_service(desk),
        evidence_service(agents, witness),
        legacy_service(agents, witness, told.legacy_evidence),
    ]

    def is_serving() -> bool:
        return desk.source.standing().phase == Phase.RUNNING

    door = GrpcDoor(told, clock, services, who, is_serving, files.load if files is not None else None)
    agents.leave_with(door.closing)
    return door


def agent(
    settings: AgentSettings,
    executors: Registry,
    tls: Tls | None,
    saying: Callable[[ProviderId], Callable[[Standing], None]],
) -> Agent:
    """A provider's agent from its settings; `saying` gets its id and gives whoever hears how the node sees it."""
    from holdfast.agent.runner import Agent  # noqa: PLC0415

    prepare_folder(settings.data)
    keys = AgentKeys(settings.data)
    signer = keys.current()
    id_ = keys.provider(signer)
    chance, hear = secrets.randbelow, saying(id_)
    return Agent(settings, executors, signer, MachineClock(), chance, tls=tls, id_=id_, on_standing=hear)


async def rotate_agent_key(data: Path, node: str, tls: Tls | None) -> tuple[ProviderId, bytes] | Refused:
    """PRV-003: change the key of the agent in this folder; who it is, and the new public key."""
    from holdfast.agent.dial import Dial  # noqa: PLC0415
    from holdfast.agent.rotate import rotate, why_not_now  # noqa: PLC0415
    from holdfast.agent.work import WorkFolder  # noqa: PLC0415

    keys, work = AgentKeys(data), WorkFolder(data / "work")
    current = keys.current()
    id_ = keys.provider(current)
    work.open()  # no agent runs here meanwhile
    dial = Dial(node, tls)
    try:
        if not keys.is_changing and (no := why_not_now(data, id_)):
            return no
        following = keys.next(current)
        answer = await rotate(dial, current, following)
        if isinstance(answer, Refused):
            return answer
        keys.turn()
        return id_, following.public
    finally:
        await dial.close()
        work.close()


def make_snapshot(config: Config) -> Tip:
    """Fold a snapshot, in this process: the node calls it in another one (ENG-003)."""

    async def make() -> Tip:
        store, tables = stores(config)
        journal = LongJournal(store, Folder(config.data / "archive"))
        try:
            return await snapshot.make(Folder(config.data / "snapshots"), journal, config.policy)
        finally:
            await tables.close()
            await journal.close()

    return asyncio.run(make())


def stores(config: Config) -> tuple[Journal, Tables]:
    """Journal and tables as configured, not opened yet; whoever asks closes them."""
    if no := why_not_stored(config):
        raise Unavailable(no.rule, no.says, no.hint)
    if config.store is Store.SQLITE:
        return SqliteJournal(config.data), SqliteTables(config.data)
    from holdfast.adapters.postgres.journal import PATIENCE_S, PostgresJournal  # noqa: PLC0415 - an extra, not everybody has it
    from holdfast.adapters.postgres.tables import PostgresTables  # noqa: PLC0415

    told = config.postgres
    assert told.dsn is not None
    place = (told.dsn.reveal(), told.schema)
    patience_s = 0.0 if config.standby else PATIENCE_S  # a standby need not wait: it follows meanwhile
    connect_s, command_s = told.connect_timeout_ms / 1000, told.command_timeout_ms / 1000
    return (
        PostgresJournal(
            *place, allow_unsafe=told.allow_unsafe, connect_s=connect_s, command_s=command_s, patience_s=patience_s
        ),
        PostgresTables(*place, connect_s=connect_s, command_s=command_s),
    )


def prepare_folder(data: Path) -> None:
    """A folder for its user alone: journal, tables, lock and socket rely on it."""
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as fault:
        raise Unavailable("SEC-001", f"{data}: {fault.strerror}", "choose a folder that can be written") from fault
