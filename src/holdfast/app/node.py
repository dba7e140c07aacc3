"""The life of a node: it starts as owner or standby, takes over when the owner is gone, and stops in order."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from holdfast.adapters.clock import MachineClock
from holdfast.adapters.keys.signing import SigningKey
from holdfast.adapters.warm_store import WarmStore
from holdfast.api.grouped_submit import GroupedSubmit
from holdfast.api.node_access import NodeAccess, Principal
from holdfast.api.rpc.unix_socket import UnixSocketServer
from holdfast.app.owner_workers import OwnerWorkers
from holdfast.app.projector_process import ProjectorProcess
from holdfast.app.servers import make_grpc_server, make_http_server
from holdfast.app.stores import make_full_journal, make_stores, prepare_folder, snapshot_folder
from holdfast.client import SOCKET_NAME, Client, NodeRefused, NodeUnreachable
from holdfast.config import Config
from holdfast.core.base.errors import Corrupt, Fenced, Refused, Unavailable
from holdfast.core.policy_change.messages import AdoptPolicy
from holdfast.engine.follower import Follower
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import EngineStatus
from holdfast.engine.queries.node import GetOwner

RETRY_S: Final = 0.2
NODE_KEY: Final = "keys/node.pem"
"""Signs the blocks that this node proposes."""
FORWARD_TIMEOUT_S: Final = 5.0
"""How long a standby waits for the owner's answer before it reports that the outcome is not known."""
_log = structlog.get_logger()


class Node:
    """An engine on its stores, with its servers: up until it is stopped or cannot go on.

    As a standby it follows the journal, answers reads, forwards commands to the owner, and becomes the owner itself
    when that one is gone (ENG-006).
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        prepare_folder(config.data)
        store, self.tables = make_stores(config)
        self.journal, self.snapshots = make_full_journal(config, store), snapshot_folder(config)
        socket, clock = (config.data / SOCKET_NAME).absolute(), MachineClock()
        self.engine = Engine(
            journal=self.journal,
            tables=self.tables,
            files=self.snapshots,
            clock=clock,
            policy=config.policy,
            owner=config.node,
            address=str(socket),
            projector=ProjectorProcess(config),
        )
        self.follower = Follower(self.journal, self.tables, self.snapshots, clock, config.policy)
        self.access = NodeAccess(self.engine, self.engine.submit)
        self.access.submit_grouped = GroupedSubmit(self.engine.submit_many)
        self.access.blobs = self.blobs = WarmStore(config.data / "warm")
        self.socket_server = UnixSocketServer(self.access, socket)
        # In a shared folder the owner has the socket: a standby listens on one that carries its own name.
        standby_socket = socket.with_name(f"{config.node}.sock")
        self.standby_server = UnixSocketServer(self.access, standby_socket) if config.standby else None
        self.http_server = make_http_server(config, self.access)
        self.grpc_server = make_grpc_server(config, self.access, self.engine, self.blobs)
        self.signer = SigningKey.load_or_create(config.data / NODE_KEY)
        self._workers: OwnerWorkers | None = None
        """Set once this node is the owner."""
        self._end_task: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------------------------ start and stop

    async def start(self) -> None:
        """Become the owner; a standby follows the owner there is."""
        if self.standby_server is not None and await self.standby_server.is_in_use():
            message = f"another node answers at {self.standby_server.path}"
            raise Unavailable("ENG-006", message, "give every node a name of its own: --node NAME")
        try:
            await self.engine.start()
        except Fenced:
            raise
        except Unavailable as fault:
            if not self.config.standby:
                raise
            _log.info("standby_started", reason=str(fault))
            await self._start_following()
            self._end_task = asyncio.create_task(self._take_over_when_unowned())
        else:
            await self._become_owner()
            self._end_task = asyncio.create_task(self.engine.wait_ended())
        for server in (self.standby_server, self.http_server, self.grpc_server):
            if server is not None:
                await server.open()

    async def stop(self) -> None:
        """Close the servers, stop the workers, commit and project what was accepted, close the stores."""
        if self._end_task is not None and self._workers is None:  # a standby must not become the owner now
            self._end_task.cancel()
            await asyncio.gather(self._end_task, return_exceptions=True)
        for server in (self.http_server, self.grpc_server, self.standby_server, self.socket_server):
            if server is not None:
                await server.close()
        if self._workers is not None:
            await self._workers.stop()
        await self.engine.stop()
        await self.tables.close()
        await self.journal.close()

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT; raises what made the node fail."""
        signalled = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, signalled.set)
        stopping, starting = asyncio.create_task(signalled.wait()), asyncio.create_task(self.start())
        await asyncio.wait({stopping, starting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and starting.exception() is None and self._end_task is not None:
            await asyncio.wait({stopping, self._end_task}, return_when=asyncio.FIRST_COMPLETED)
        _log.info("stopping", reason="signal" if signalled.is_set() else "failure")
        stopping.cancel()
        starting.cancel()  # a start may take long, or wait for a store that is away
        await asyncio.wait({starting})
        await self.stop()
        with suppress(asyncio.CancelledError):
            await starting
            await (self._end_task or starting)
        _log.info("stopped", last_event=self.access.source.replication_status().tip.last)

    # ------------------------------------------------------------------------------------ owner

    async def _become_owner(self) -> None:
        # What was loaded lives long: without this the collector would walk it again and again and stop the loop.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000)  # rows on their way to the tables are many and in no cycle: collect seldom
        sys.setswitchinterval(
            0.0005
        )  # the journal's thread needs a moment often: by default it waits ten times as long
        await self._adopt_policy()
        self.access.source, self.access.submit, self.access.forward_to_owner = self.engine, self.engine.submit, None
        self.follower.event_stream.close()  # it ends here: its readers continue with the engine's
        await self.socket_server.open()
        self._workers = OwnerWorkers(self.config, self.engine, self.blobs, self.signer)
        self._workers.start()
        self.access.collector = self._workers.collector
        head = self.engine.durable_head
        _log.info(
            "up",
            data=str(self.config.data),
            store=self.config.store.value,
            term=head.term,
            batch=head.number,
            last_event=head.last,
        )

    async def _adopt_policy(self) -> None:
        """Journal the policy of this configuration where it differs from the last one (PRI-003)."""
        while True:
            try:
                outcome = await self.engine.submit(AdoptPolicy(self.config.policy))
            except Fenced:
                raise
            except Unavailable:
                if self.engine.status is not EngineStatus.RECOVERING:
                    raise
                await asyncio.sleep(RETRY_S)
                continue
            if isinstance(outcome, Refused):
                raise Unavailable(outcome.rule, outcome.message, outcome.hint)
            return

    # ------------------------------------------------------------------------------------ standby

    async def _start_following(self) -> None:
        await self.follower.load_when_created()
        self.access.source, self.access.forward_to_owner = self.follower, self._forward_to_owner

    async def _take_over_when_unowned(self) -> None:
        """Follow until the owner is gone, take over, and stay the owner to the end."""
        while self.engine.status is not EngineStatus.RUNNING:
            following = asyncio.create_task(self.follower.run())
            unowned = asyncio.create_task(self.journal.wait_until_unowned())
            try:
                await asyncio.wait({following, unowned}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                following.cancel()
                unowned.cancel()
                ended = await asyncio.gather(following, unowned, return_exceptions=True)
            if isinstance(ended[0], Corrupt):
                raise ended[0]
            try:
                await self.engine.start(self.follower)
            except Unavailable as fault:  # another standby was faster, or the store is away: follow on
                _log.info("takeover_failed", reason=str(fault))
                await asyncio.sleep(RETRY_S)
        await self._become_owner()
        await self.engine.wait_ended()

    async def _forward_to_owner(self, method: str, params: object, principal: Principal) -> Any:
        """Have the owner decide for the same principal, and return its answer."""
        owner = self.follower.query_undurable(GetOwner())
        if owner is None or not owner.api_address:
            raise Unavailable("ENG-006", "the journal has no owner yet", "ask again in a moment")
        if self.standby_server is not None and owner.api_address == str(self.standby_server.path):
            message = f"the owner's {owner.api_address} is on another machine"
            raise Unavailable("ENG-006", message, "ask the owner itself")
        client = Client(Path(owner.api_address), total_timeout_s=0.0, answer_timeout_s=FORWARD_TIMEOUT_S)
        try:
            async with client as node:  # without retries: a dead owner is reported at once
                return await node.call_for(msgspec.to_builtins(principal), method, params)
        except NodeRefused as refusal:
            details = tuple(refusal.details.items())
            return Refused(refusal.rule, refusal.message, refusal.hint, refusal.name, details)
        except NodeUnreachable as fault:
            raise Unavailable("ENG-006", f"the owner does not answer: {fault}", "ask again with the same id") from fault
