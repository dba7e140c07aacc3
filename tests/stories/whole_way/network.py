"""A node, its archive's gateway, three agents and the lines between them, all of which can be killed or cut."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from tests.loopback_ports import free_ports
from tests.storage.stores import Place
from tests.stories.agent_process import AgentProcess
from tests.stories.cli_runner import CliResult, holdfast
from tests.stories.cuttable_proxy import CuttableProxy
from tests.stories.forked_process import RunningProcess, start_program
from tests.stories.node_process import NodeProcess, accepts_connections, on_postgres
from tests.stories.own_agent import OwnAgent, answer_chat
from tests.stories.small_disk import SmallDisk
from tests.stories.whole_way.story_jobs import INLINE_BYTES_MAX

from holdfast.client import NodeRefused
from holdfast.client.node_socket import NodeSocket
from holdfast.core.key.model import secret_hash

PATIENCE_S = 120.0
HONEST, LIAR, FULL = "oak", "ash", "fir"
FINAL_AFTER = 6
STAKE = 1_000_000
SETTINGS = {
    "HOLDFAST_GRPC__ENABLED": "true",
    "HOLDFAST_HTTP__ENABLED": "true",
    "HOLDFAST_HTTP__KEY_PER_S": "100000",
    "HOLDFAST_HTTP__KEY_BURST": "100000",
    "HOLDFAST_POLICY__ADMISSION__INPUT_CLAIM_MS": "1000",
    "HOLDFAST_POLICY__ADMISSION__INVALID_INPUTS_MAX": "100000",
    "HOLDFAST_POLICY__CHAIN__BLOCK_MS": "100",
    "HOLDFAST_POLICY__CHAIN__IDLE_BLOCK_MS": "200",
    "HOLDFAST_POLICY__CHAIN__FINALITY_DEPTH": str(FINAL_AFTER),
    "HOLDFAST_POLICY__LEASE__AI_MS": "4000",
    "HOLDFAST_POLICY__LEASE__QUANTUM_MS": "4000",
    "HOLDFAST_POLICY__LEASE__ACK_TIMEOUT_MS": "2000",
    "HOLDFAST_POLICY__LEASE__DECLINE_COOLDOWN_MS": "1000",
    "HOLDFAST_POLICY__RETRY__BASE_AI_MS": "100",
    "HOLDFAST_POLICY__RETRY__BASE_QUANTUM_MS": "100",
    "HOLDFAST_POLICY__RETRY__CAP_MS": "1000",
    "HOLDFAST_POLICY__RETRY__FAILURES_MAX": "50",
    "HOLDFAST_POLICY__PROVIDER__HEARTBEAT_MS": "1000",
    "HOLDFAST_POLICY__PROVIDER__LEASE_EXPIRED_DENY_MS": "1000",
    "HOLDFAST_POLICY__PROVIDER__COOLDOWN_MS": "1000",
    "HOLDFAST_POLICY__PROVIDER__COOLDOWN_CAP_MS": "2000",
    "HOLDFAST_POLICY__QUOTA__AI_UNITS_PER_EPOCH": "1000000",
    "HOLDFAST_POLICY__QUOTA__QUANTUM_UNITS_PER_EPOCH": "1000000",
    "HOLDFAST_POLICY__RESULT__MAX_INLINE_BYTES": str(INLINE_BYTES_MAX),
    "HOLDFAST_POLICY__RESULT__RETAIN_HOT_BLOCKS": str(FINAL_AFTER),
    "HOLDFAST_POLICY__RESULT__RETAIN_WARM_DAYS": "0",
    "HOLDFAST_POLICY__RESULT__GC_INTERVAL_MS": "500",
    "HOLDFAST_POLICY__ARCHIVE__BLOB_WAIT_BLOCKS": "3",
    "HOLDFAST_POLICY__ARCHIVE__RETRY_BASE_MS": "100",
    "HOLDFAST_POLICY__ARCHIVE__RETRY_CAP_MS": "500",
    "HOLDFAST_POLICY__ARCHIVE__STALLED_RETRY_MS": "1000",
    "HOLDFAST_ARCHIVE__PROVIDER": "load-s3-agent",
    "HOLDFAST_ARCHIVE__KZG_PROCESSES": "1",
}
"""Short times, so that what takes days in earnest happens within a test; bytes may go once the archive has them."""


class GatewayProcess:
    """`holdfast gateway serve` in its own process: the archive."""

    def __init__(self, folder: Path, port: int) -> None:
        self._data, self._port = folder / "archive", port
        self.token_file = folder / "archive.token"
        self._process: RunningProcess | None = None

    def create_key(self) -> None:
        words = ("gateway", "key", "create", "--label", "node", "--data", self._data, "--output", self.token_file)
        created = holdfast(*words)
        assert created.code == 0, created.err

    async def up(self) -> None:
        words = ["gateway", "serve", "--data", str(self._data)]
        environ = {"HOLDFAST_GATEWAY__PORT": str(self._port)}
        self._process = start_program(words, self._data.with_suffix(".log"), environ)
        async with asyncio.timeout(PATIENCE_S):
            while not await accepts_connections(self._port):
                assert self._process.poll() is None, self._data.with_suffix(".log").read_text()[-2_000:]
                await asyncio.sleep(0.02)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class LyingStoryAgent(AgentProcess):
    """What it answers is false."""

    module = "tests.stories.whole_way.lying_agent"


class WholeNetwork:
    """All processes of the story."""

    def __init__(self, place: Place, store: str, disk: SmallDisk, seed: int) -> None:
        self.place, self.store, self.disk, self.random = place, store, disk, Random(seed)
        folder = place.folder
        self.grpc, self.http, self.chat, gateway, *outside = free_ports(7)
        self.work_line = CuttableProxy(outside[0], self.grpc)
        self.client_line = CuttableProxy(outside[1], self.http)
        self.archive_line = CuttableProxy(outside[2], gateway)
        self.gateway = GatewayProcess(folder, gateway)
        self.settings = SETTINGS | {
            "HOLDFAST_GRPC__PORT": str(self.grpc),
            "HOLDFAST_HTTP__PORT": str(self.http),
            "HOLDFAST_ARCHIVE__URL": f"http://127.0.0.1:{self.archive_line.port}",
            "HOLDFAST_ARCHIVE__TOKEN_FILE": str(self.gateway.token_file),
        }
        self.settings |= on_postgres(place.address) if store == "postgres" else {}
        self.node = NodeProcess(folder / "data", "node", self.settings)
        honest, full = (OwnAgent(folder / name, name, self.work_line.port) for name in (HONEST, FULL))
        self.own_agents = [honest, full]
        self.agents = [honest, full, LyingStoryAgent(folder / LIAR, LIAR, self.work_line.port)]
        self._server: asyncio.Server | None = None
        self.disturbances: list[Callable[[], Awaitable[None]]] = [
            self._kill_node,
            self._kill_agent,
            self._kill_gateway,
            self._roll_back,
            self._cut_line,
        ]
        self.reorgs = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.client_line.port}"

    # ------------------------------------------------------------------------------------ beginning and end

    async def begin(self) -> dict[str, str]:
        """Everything runs, the disk of one agent is full; the tokens of those who will call."""
        self.gateway.create_key()
        self._server = await asyncio.start_server(answer_chat, "127.0.0.1", self.chat)
        for line in (self.work_line, self.client_line, self.archive_line):
            await line.open()
        await asyncio.gather(self.gateway.up(), self.node.up())
        for own in self.own_agents:
            own.describe(f"http://127.0.0.1:{self.chat}/v1/chat/completions", circuits=True)
        for agent in self.agents:
            agent.up()
        tokens = await self._create_keys()
        await self._stake()
        copied = await self.run_cli("archive", "key", "export", self.place.folder / "copy.key")
        assert copied.code == 0, copied.err
        self.disk.fill()
        return tokens

    async def _create_keys(self) -> dict[str, str]:
        roles = {"alice": ("requester", "alice"), "bob": ("requester", "bob"), "treasurer": ("treasurer", None)}
        tokens, secret = dict[str, str](), secrets.token_hex(32)
        async with NodeSocket(self.node.data, PATIENCE_S) as client:
            for number, (name, (role, account)) in enumerate(roles.items(), start=1):
                id_, hashed = f"{number:016x}", secret_hash(secret.encode()).hex()
                await client.call("key.createKey", id=id_, secret=hashed, role=role, account=account)
                tokens[name] = f"hf_{id_}_{secret}"
        return tokens

    async def _stake(self) -> None:
        async with NodeSocket(self.node.data, PATIENCE_S) as client, asyncio.timeout(PATIENCE_S):
            while len(found := (await client.call("aicf.listProviders"))["providers"]) < len(self.agents):
                await asyncio.sleep(0.05)
            for number, view in enumerate(found, start=1):
                id_, request = view["provider"]["id"], bytes([number]) * 32
                await client.mint(request, view["provider"]["account"], STAKE)
                await client.call("provider.stake", provider_id=id_, amount=STAKE, request=request.hex())

    async def end(self) -> None:
        for agent in self.agents:
            agent.end()
        self.node.end()
        self.gateway.end()
        for line in (self.work_line, self.client_line, self.archive_line):
            await line.close()
        if self._server is not None:
            self._server.close()

    async def run_cli(self, *words: object) -> CliResult:
        """With the archive's settings, for commands that read it themselves."""
        return await asyncio.to_thread(holdfast, *words, "--data", self.node.data, environ=self.settings)

    # ------------------------------------------------------------------------------------ what breaks

    def plan(self, rounds: int) -> list[Callable[[], Awaitable[None]]]:
        """Every kind of fault so often, in an order of chance."""
        planned = self.disturbances * rounds
        self.random.shuffle(planned)
        return planned

    async def _kill_node(self) -> None:
        await self.node.kill()
        await self.node.up()

    async def _kill_agent(self) -> None:
        agent = self.random.choice(self.agents)
        agent.kill()
        agent.up()

    async def _kill_gateway(self) -> None:
        self.gateway.end()
        await self.gateway.up()

    async def _roll_back(self) -> None:
        async with NodeSocket(self.node.data, PATIENCE_S) as client:
            head = (await client.call("chain.getHead"))["block"]["height"]
            with suppress(NodeRefused):  # it became final meanwhile
                await client.call("chain.rollBack", height=max(0, head - self.random.randrange(1, FINAL_AFTER)))
                self.reorgs += 1

    async def _cut_line(self) -> None:
        self.random.choice([self.work_line, self.client_line, self.archive_line]).cut()

    async def wait_until(self, holds: Callable[[], Awaitable[Any]]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not await holds():
                await asyncio.sleep(0.05)
