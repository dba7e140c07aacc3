"""The life of a node: it starts as owner or standby, takes over when the owner is gone, and stops in order."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from holdfast.adapters.archive.settings import ProviderKind
from holdfast.adapters.clock import MachineClock
from holdfast.adapters.inputs.input_store import InputStore
from holdfast.adapters.keys.signing import SigningKey
from holdfast.api.grouped_submit import GroupedSubmit
from holdfast.api.node_access import NodeAccess, Principal
from holdfast.api.rpc.unix_socket import UnixSocketServer
from holdfast.app.archive_workers import stored_key_of
from holdfast.app.owner_workers import OwnerWorkers
from holdfast.app.projector_process import ProjectorProcess
from holdfast.app.servers import make_grpc_server, make_http_server, make_local_http_server
from holdfast.app.standby_archive import StandbyArchive
from holdfast.app.stores import (
    make_blob_files,
    make_full_journal,
    make_stores,
    make_warm_store,
    prepare_folder,
    snapshot_folder,
)
from holdfast.client import SOCKET_NAME, NodeRefused, NodeUnreachable
from holdfast.client.node_socket import NodeSocket
from holdfast.config import Config
from holdfast.core.base.errors import Corrupt, Fenced, Refused, Unavailable
from holdfast.core.base.event import Command
from holdfast.core.policy import policy_differences
from holdfast.core.policy_change.decide import why_not_network
from holdfast.core.policy_change.messages import AdoptPolicy
from holdfast.core.validator.messages import SucceedProposer
from holdfast.engine.follower import Follower
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import EngineStatus, Outcome
from holdfast.engine.ownership.owner_watch import OwnerWatch
from holdfast.engine.queries.node import GetOwner, GetPolicy
from holdfast.system.descriptors import raise_descriptor_limit
from holdfast.system.interpreter import tune_owner
from holdfast.system.malloc_arenas import limit_malloc_arenas

RETRY_S: Final = 0.2
DESCRIPTORS_WANTED: Final = 65_536
"""Many systems begin with 1 024, fewer than the connections that the APIs accept (SEC-001)."""
NODE_KEY: Final = "keys/node.pem"
"""Signs the blocks that this node proposes."""
FORWARD_TIMEOUT_S: Final = 5.0
"""How long a standby waits for the owner's answer before it reports that the outcome is not known."""
APPLY_HINT: Final = "the adopted value counts; `holdfast policy apply FILE` adopts the file's"
_log = structlog.get_logger()


class Node:
    """An engine on its stores, with its servers: up until it is stopped or cannot go on.

    As a standby it follows the journal, answers reads, forwards commands to the owner, and becomes the owner itself
    when that one is gone (ENG-006).
    """

    def __init__(self, config: Config) -> None:
        limit_malloc_arenas()  # its stores start threads
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
            settings=config.owner,
            accept_clock=config.accept_clock,
        )
        self.follower = Follower(self.journal, self.tables, self.snapshots, clock, config.policy)
        self.access = NodeAccess(self.engine, self.engine.submit)
        self.watch = OwnerWatch(self.journal, clock, config.owner)
        self.access.owner_silent_ms = lambda: self.watch.silent_ms
        self.access.clock_fault = lambda: self.engine.clock_fault
        self.access.submit_grouped = GroupedSubmit(self.engine.submit_many)
        self.access.blobs = self.blobs = make_warm_store(config)
        self.access.inputs = self.inputs = InputStore(config.data / "inputs", clock)
        self.access.blob_files = make_blob_files(config)
        self.access.stored_key_of = partial(stored_key_of, config)
        self.socket_server = UnixSocketServer(self.access, socket)
        # In a shared folder the owner has the socket: a standby listens on one that carries its own name.
        standby_socket = socket.with_name(f"{config.node}.sock")
        self.standby_server = UnixSocketServer(self.access, standby_socket) if config.standby else None
        self.local_http_server = make_local_http_server(config, self.access)
        self.http_server = make_http_server(config, self.access)
        self.grpc_server = make_grpc_server(config, self.access, self.engine, self.blobs)
        self.signer = SigningKey.load_or_create(config.data / NODE_KEY)
        self._workers: OwnerWorkers | None = None
        """Set once this node is the owner."""
        self._standby_archive: StandbyArchive | None = None
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
            self._end_task = asyncio.create_task(self._live(is_owner=False))
        else:
            await self._become_owner()
            self._end_task = asyncio.create_task(self._live(is_owner=True))
        for server in (self.standby_server, self.http_server, self.grpc_server):
            if server is not None:
                await server.open()

    async def stop(self) -> None:
        """Close the servers, stop the workers, commit and project what was accepted, close the stores."""
        if self._end_task is not None and self._workers is None:  # a standby must not become the owner now
            self._end_task.cancel()
            await asyncio.gather(self._end_task, return_exceptions=True)
        for server in (
            self.http_server,
            self.grpc_server,
            self.standby_server,
            self.local_http_server,
            self.socket_server,
        ):
            if server is not None:
                await server.close()
        await self._stop_workers()
        await self._close_standby_archive()
        await self.access.input_checker.close()
        await self.engine.stop()
        await self.tables.close()
        await self.journal.close()

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT; raises what made the node fail."""
        raise_descriptor_limit(DESCRIPTORS_WANTED)
        signalled = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, signalled.set)
        stopping, starting = asyncio.create_task(signalled.wait()), asyncio.create_task(self.start())
        await asyncio.wait({stopping, starting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and starting.exception() is None and self._end_task is not None:
            await asyncio.wait({stopping, self._end_task}, return_when=asyncio.FIRST_COMPLETED)
        if signalled.is_set():
            _log.info("stopping", reason="signal")
        else:
            _log.error("stopping", reason=_why_ended(starting, self._end_task))
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
        tune_owner()
        await self._adopt_policy()
        self.access.source, self.access.submit, self.access.forward_to_owner = self.engine, self.engine.submit, None
        self.follower.event_stream.close()  # it ends here: its readers continue with the engine's
        await self.socket_server.open()
        await self.local_http_server.open()
        await self._succeed_proposer()
        workers = self._workers = OwnerWorkers(
            self.config, self.engine, self.journal, self.blobs, self.inputs, self.signer
        )
        workers.start()
        self.access.collector, self.access.scrubber = workers.collector, workers.scrubber
        self.access.journal_scrubber, self.watch.silent_ms = workers.journal_scrubber, 0
        await self._close_standby_archive()
        self.access.archive = self.access.archived = workers.archive.control if workers.archive is not None else None
        self.access.packages = workers.package_service
        head = self.engine.durable_head
        _log.info(
            "up",
            data=str(self.config.data),
            store=self.config.store.value,
            term=head.term,
            batch=head.number,
            last_event=head.last,
        )

    async def _succeed_proposer(self) -> None:
        """NTC-005: from here on this node archives what the owner before it has left, if it is a validator."""
        outcome = await self._submit_when_ready(SucceedProposer(self.signer.public))
        if isinstance(outcome, Refused):
            _log.error("not_a_validator", key=self.signer.public.hex(), reason=outcome.message, hint=outcome.hint)

    async def _live(self, *, is_owner: bool) -> None:
        """Until an owner is stopped. A standby that was replaced as owner follows again (ENG-008); others end."""
        while True:
            if not is_owner:
                await self._follow_until_owner()
                await self._become_owner()
            try:
                return await self.engine.wait_ended()
            except Fenced as fault:
                if not self.config.standby:
                    raise
                _log.warning("ownership_lost", reason=str(fault))
                await self._stop_owning()
                is_owner = False

    async def _stop_owning(self) -> None:
        await self.local_http_server.close()
        self.local_http_server = make_local_http_server(self.config, self.access)  # a closed one stays closed
        await self.socket_server.close()
        await self._stop_workers()
        await self.engine.end_ownership()
        await self._start_following()

    async def _stop_workers(self) -> None:
        workers, self._workers = self._workers, None
        self.access.collector = self.access.scrubber = self.access.journal_scrubber = None
        self.access.packages = self.access.archive = self.access.archived = None
        if workers is not None:
            await workers.stop()

    async def _close_standby_archive(self) -> None:
        archive, self._standby_archive = self._standby_archive, None
        if archive is not None:
            await archive.close()

    async def _adopt_policy(self) -> None:
        """Journal the policy of the settings where the journal has none (PRI-003).

        Else the journal's counts: a start never changes it, and names the settings that differ.
        """
        adopted, wanted = self.engine.query_undurable(GetPolicy()), self.config.policy
        if adopted.is_adopted:
            if refusal := why_not_network(adopted.policy, wanted):
                raise Unavailable(refusal.rule, refusal.message, refusal.hint)
            for path, (ours, theirs) in policy_differences(adopted.policy, wanted).items():
                _log.warning("policy_differs", setting=path, adopted=ours, configured=theirs, hint=APPLY_HINT)
            return
        outcome = await self._submit_when_ready(AdoptPolicy(wanted, "init"))
        if isinstance(outcome, Refused):
            raise Unavailable(outcome.rule, outcome.message, outcome.hint)

    async def _submit_when_ready(self, command: Command) -> Outcome:
        """An engine that has just started may have to recover once more."""
        while True:
            try:
                return await self.engine.submit(command)
            except Fenced:
                raise
            except Unavailable:
                if self.engine.status is not EngineStatus.RECOVERING:
                    raise
                await asyncio.sleep(RETRY_S)

    # ------------------------------------------------------------------------------------ standby

    async def _start_following(self) -> None:
        await self.follower.load_when_created()
        self.access.source, self.access.forward_to_owner = self.follower, self._forward_to_owner
        if self.config.archive.provider is not ProviderKind.NONE:
            self.access.archived = self._standby_archive = StandbyArchive(self.config, self.follower)

    async def _follow_until_owner(self) -> None:
        """Follow until the owner is gone or hangs, then take over."""
        while self.engine.status is not EngineStatus.RUNNING:
            following = asyncio.create_task(self.follower.run())
            unowned = asyncio.create_task(self.journal.wait_until_unowned())
            replacing = asyncio.create_task(self.watch.replace_hung_owner())
            tasks = (following, unowned, replacing)
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
            if isinstance(ended[0], Corrupt):
                raise ended[0]
            try:
                await self.engine.start(self.follower)
            except Unavailable as fault:  # another standby was faster, or the store is away: follow on
                _log.info("takeover_failed", reason=str(fault))
                await asyncio.sleep(RETRY_S)

    async def _forward_to_owner(self, method: str, params: object, principal: Principal) -> Any:
        """Have the owner decide for the same principal, and return its answer."""
        owner = self.follower.query_undurable(GetOwner())
        if owner is None or not owner.api_address:
            raise Unavailable("ENG-006", "the journal has no owner yet", "ask again in a moment")
        if self.standby_server is not None and owner.api_address == str(self.standby_server.path):
            message = f"the owner's {owner.api_address} is on another machine"
            raise Unavailable("ENG-006", message, "ask the owner itself")
        client = NodeSocket(Path(owner.api_address), total_timeout_s=0.0, answer_timeout_s=FORWARD_TIMEOUT_S)
        try:
            async with client as node:  # without retries: a dead owner is reported at once
                return await node.call_for(msgspec.to_builtins(principal), method, params)
        except NodeRefused as refusal:
            details = tuple(refusal.details.items())
            return Refused(refusal.rule, refusal.message, refusal.hint, refusal.name, details)
        except NodeUnreachable as fault:
            raise Unavailable("ENG-006", f"the owner does not answer: {fault}", "ask again with the same id") from fault


def _why_ended(*tasks: asyncio.Task[None] | None) -> str:
    """What made the first of them fail, in its own words."""
    for task in tasks:
        if task is not None and task.done() and not task.cancelled() and (fault := task.exception()) is not None:
            return str(fault) or type(fault).__name__
    return "it has ended by itself"
