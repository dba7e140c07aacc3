"""How long no node answers after the owner was killed or stopped: a standby takes over, or it is started again."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL, SIGSTOP

from tests.stories.node_process import NodeProcess, on_postgres

from bench.engine.restarts import fill_open
from bench.measure import Table, at_most, interleave, show, table
from bench.stores import Store, StorePlace, postgres
from holdfast.client import NodeUnreachable
from holdfast.client.node_socket import NodeSocket
from holdfast.client.refusals import UnavailableError

PATIENCE_S = 60.0
ASK_AGAIN_S = 0.02
AGAIN, OWNER, ANEW, ANSWER = (
    "no standby: the node is started again, first answer",
    "standby: it is the owner",
    "standby: first command answered, asked anew every 20 ms",
    "standby: first command answered, asked once at the kill",
)
HUNG, HUNG_ANSWER = "standby: it is the owner", "standby: a command answered"


class _Node:
    """A node process that can own or follow, and the socket it always has."""

    def __init__(self, spot: StorePlace, name: str, settings: Mapping[str, str]) -> None:
        self.folder = spot.folder if spot.address is None else spot.folder / name
        self.process = NodeProcess(self.folder, name, settings)
        self.socket = self.folder / f"{name}.sock"

    async def up(self) -> None:
        await self.process.up(self.socket)


async def compare_takeovers(store: Store, rounds: int, count: int) -> Table:
    """kill -9 of the owner with `count` open reservations, again and again; the two nodes change places."""
    spot = store.place("over")
    await fill_open(spot, count)
    settings = {"HOLDFAST_STANDBY": "true"} | ({} if spot.address is None else on_postgres(spot.address))
    nodes = [_Node(spot, "one", settings), _Node(spot, "two", settings)]

    async def started_again(_: int) -> Mapping[str, float]:
        node = nodes[0]
        await node.up()
        await _reserve(node.socket)
        began = time.perf_counter()
        node.process.signal(SIGKILL)
        await node.process.ended()
        starting = asyncio.create_task(node.up())
        took = await _reserve_impatiently(node.socket) - began
        await starting
        await node.process.stop()
        return {AGAIN: took}

    async def taken_over(number: int) -> Mapping[str, float]:
        owner, standby = nodes[number % 2], nodes[1 - number % 2]
        await owner.up()
        await standby.up()
        await _wait_caught_up(owner.socket, standby.socket)
        began = time.perf_counter()
        owner.process.signal(SIGKILL)
        owning = asyncio.create_task(_wait_owner(standby.socket))
        asking_anew = asyncio.create_task(_reserve_impatiently(standby.socket))
        asking_once = asyncio.create_task(_reserve(standby.socket))
        owned, anew, once = [done - began for done in await asyncio.gather(owning, asking_anew, asking_once)]
        await owner.process.ended()
        await standby.process.stop()
        return {OWNER: owned, ANEW: anew, ANSWER: once}

    try:
        figures = await interleave((started_again, taken_over), rounds)
    finally:
        for node in nodes:
            node.process.end()
    many = f"{count:,}".replace(",", " ")
    title = f"kill -9 of the owner with {many} open reservations, {store.title}"
    found = table(store.named("engine-takeover"), title, "s", figures, [AGAIN, OWNER, ANEW, ANSWER], AGAIN)
    found.goals += [at_most(name, figures[name], 1, " s") for name in (ANEW, ANSWER)]
    found.notes.append("the limit of 1 s is this program's own: GOALS names none")
    return found


async def run_hung(folder: Path, *, is_quick: bool) -> list[Table]:
    """SIGSTOP of the owner on both stores, with the default settings: 10 s of silence, then the standby owns."""
    rounds, tables = 1 if is_quick else 3, list[Table]()
    tables.append(await measure_hung(Store(folder / "lite"), rounds))
    with postgres(folder / "pg") as server:
        if server is not None:
            tables.append(await measure_hung(server, rounds))
    for each in tables:
        print(show(each), end="\n\n", flush=True)
    return tables


async def measure_hung(store: Store, rounds: int) -> Table:
    """From SIGSTOP of the owner until the standby owns the journal, and until it has answered a command."""
    spot = store.place("hung")
    await fill_open(spot, 1_000)
    settings = {"HOLDFAST_STANDBY": "true"} | ({} if spot.address is None else on_postgres(spot.address))
    nodes = [_Node(spot, "one", settings), _Node(spot, "two", settings)]

    async def stopped(number: int) -> Mapping[str, float]:
        owner, standby = nodes[number % 2], nodes[1 - number % 2]
        await owner.up()
        await standby.up()
        await _wait_caught_up(owner.socket, standby.socket)
        began = time.perf_counter()
        owner.process.signal(SIGSTOP)
        owned = await _wait_owner(standby.socket) - began
        answered = await _reserve(standby.socket) - began
        owner.process.signal(SIGKILL)
        await owner.process.ended()
        await standby.process.stop()
        return {HUNG: owned, HUNG_ANSWER: answered}

    try:
        figures = await interleave((stopped,), rounds)
    finally:
        for node in nodes:
            node.process.end()
    found = table(
        store.named("takeover-hung"), f"SIGSTOP of the owner, {store.title}", "s", figures, [HUNG, HUNG_ANSWER], HUNG
    )
    found.goals.append(at_most(HUNG_ANSWER, figures[HUNG_ANSWER], 15, " s"))
    found.notes.append(
        "owner.takeover_ms is 10 000 and owner.heartbeat_ms 1 000, the defaults; the limit is this program's own"
    )
    return found


async def _reserve(socket_path: Path) -> float:
    """When a command was answered, as a client with default settings sees it, growing pauses included."""
    async with NodeSocket(socket_path, PATIENCE_S) as client:
        await client.reserve(os.urandom(32), "alice", 5)
    return time.perf_counter()


async def _reserve_impatiently(socket_path: Path) -> float:
    """The same without growing pauses, which would be all that is measured: one command, asked until answered."""
    id_ = os.urandom(32)
    while True:
        async with NodeSocket(socket_path, total_timeout_s=0, answer_timeout_s=ASK_AGAIN_S) as client:
            with suppress(NodeUnreachable, UnavailableError):
                await client.reserve(id_, "alice", 5)
                return time.perf_counter()
        await asyncio.sleep(0.005)


async def _wait_caught_up(owner: Path, standby: Path) -> None:
    async with NodeSocket(owner, PATIENCE_S) as one, NodeSocket(standby, PATIENCE_S) as two:
        await two.reserve(os.urandom(32), "alice", 5)
        while (await two.status())["event"] < (await one.status())["event"]:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.005)
        assert (await two.status())["role"] == "follower"


async def _wait_owner(socket_path: Path) -> float:
    async with NodeSocket(socket_path, PATIENCE_S) as client:
        while (await client.status())["role"] != "owner":  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.002)
    return time.perf_counter()
