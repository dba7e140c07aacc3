"""Evidence end to end: emitted, spooled, sent, stored and acked by a durable node, against a receiver that does least.

Node, receiver and senders are real processes. A sender emits 300-byte records into several spools and ships them; the
clock runs from the first emit to the last ack.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

import msgspec
from tests.loopback_ports import free_ports
from tests.stories.node_process import NodeProcess, on_postgres

from bench.answer_probe import probing
from bench.measure import Table, Turn, at_least, at_most, interleave, show, spread, table
from bench.processor_time import process_s
from bench.stores import Store, StorePlace, postgres
from bench.stream.sender_process import memory_kib
from holdfast.shipping.evidence_transport import Hello
from holdfast.shipping.node_connection import NodeConnection
from holdfast.shipping.retrovue_transport import RetrovueEvidenceStream
from holdfast.spool.files.record import Encoder

CHANNELS = (1, 8, 64)
IDLE, WARM = 1_000, 20
REST_S = 1.0
BARE, BARE_EACH = "bare receiver, batched, 8 channels", "bare receiver, one a message, 8 channels"
SETTINGS = {
    "HOLDFAST_GRPC__ENABLED": "true",
    "HOLDFAST_GRPC__LEGACY_EVIDENCE": "open",
    "HOLDFAST_POLICY__EVIDENCE__LEGACY_CHANNELS_MAX": "5000",
    "HOLDFAST_LOG__LEVEL": "warning",
    # The senders have no stake: with the default budget it would be measured, and not the stream.
    "HOLDFAST_GRPC__UNSTAKED_KIB_PER_S": "10000000",
    "HOLDFAST_GRPC__UNSTAKED_KIB_BURST": "10000000",
}


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """All comparisons, each printed as soon as it is measured."""
    rounds, events, idle = (1, 5_000, 50) if is_quick else (5, 60_000, IDLE)
    began, tables = time.monotonic(), list[Table]()

    async def measure(store: Store) -> None:
        for found in await compare_streams(store, rounds, events, idle):
            print(show(found), end="\n\n", flush=True)
            tables.append(found)

    await measure(Store(folder / "lite"))
    with postgres(folder / "pg") as server:
        if server is not None:
            await measure(server)
    print(f"took {time.monotonic() - began:.0f} s")
    return tables


# ------------------------------------------------------------------------------------------------ processes


class SenderProcess:
    """A sender's process, and orders to it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def read_answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, "the sender has ended"
        return msgspec.json.decode(line, type=dict[str, Any])

    async def do(self, what: str, events: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode({"do": what, "events": events}) + b"\n")
        return await self.read_answer()


@asynccontextmanager
async def process(module: str, *words: object) -> AsyncIterator[asyncio.subprocess.Process]:
    """It ends when its standard input does."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", module, *map(str, words))
    made = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=1 << 24)
    try:
        yield made
    finally:
        assert made.stdin is not None
        made.stdin.close()
        await made.wait()


@asynccontextmanager
async def node_on(spot: StorePlace) -> AsyncIterator[tuple[int, int]]:
    """Port and process id of a node."""
    port = free_ports(1)[0]
    store = {} if spot.address is None else on_postgres(spot.address)
    spot.folder.mkdir(parents=True, exist_ok=True)
    node = NodeProcess(spot.folder / "node", "node", SETTINGS | store | {"HOLDFAST_GRPC__PORT": str(port)})
    try:
        await node.up()
        yield port, node.pid
        await node.stop()
    finally:
        node.end()


@asynccontextmanager
async def bare_on(file: Path) -> AsyncIterator[int]:
    port = free_ports(1)[0]
    async with process("bench.stream.bare_receiver", file, port) as made:
        assert made.stdout is not None
        assert await made.stdout.readline(), "the bare receiver did not start"
        yield port


async def sender(stack: AsyncExitStack, port: int, protocol: str, channels: int, folder: Path) -> SenderProcess:
    where = folder / f"{protocol}-{channels}"
    made = SenderProcess(
        await stack.enter_async_context(process("bench.stream.sender_process", port, protocol, channels, where))
    )
    await made.read_answer()
    return made


# ------------------------------------------------------------------------------------------------ comparisons


async def compare_streams(store: Store, rounds: int, events: int, idle_channels: int) -> list[Table]:
    """Memory of a node that has just begun, then rates, latency and pauses."""
    spot = store.place("stream")
    async with AsyncExitStack() as stack:
        port, pid = await stack.enter_async_context(node_on(spot))
        idle = await _idle(store, port, pid, idle_channels)
        bare = await stack.enter_async_context(bare_on(spot.folder / "bare"))
        names: dict[str, tuple[SenderProcess, int]] = {}
        for protocol, each, title in (("bare", events, BARE), ("retrovue", events // 100, BARE_EACH)):
            names[title] = await sender(stack, bare, protocol, 8, spot.folder / "to-bare"), each
        for protocol, kind, each in (("holdfast", "batched", events), ("retrovue", "one a message", events // 12)):
            for count in CHANNELS:
                made = await sender(stack, port, protocol, count, spot.folder)
                names[f"{kind}, {count} channel{'' if count == 1 else 's'}"] = made, each
        rate = await _rates(store, names, rounds, pid)
        late = await _latency(store, names["batched, 8 channels"][0], names[BARE][0], rounds, max(50, events // 300))
        pauses = await _pauses(store, spot.folder / "node", names["batched, 8 channels"][0], rounds, events)
        return [rate, late, pauses, idle]


async def _rates(store: Store, names: Mapping[str, tuple[SenderProcess, int]], rounds: int, pid: int) -> Table:
    """`pid` is the node's."""
    sizes: dict[str, float] = {}
    costs = {name: (list[float](), list[float]()) for name in names}

    def turn_of(name: str, made: SenderProcess, events: int) -> Turn:
        async def turn(_: int) -> Mapping[str, float]:
            before, count = process_s(pid), events // 50 * 50
            found = await made.do("rate", count)
            sizes[name] = found["a_message"]
            costs[name][0].append(found["us"])
            costs[name][1].append(1e6 * (process_s(pid) - before) / count)
            return {name: found["rate"]}

        return turn

    figures = await interleave([turn_of(name, *each) for name, each in names.items()], rounds)
    title = f"Events end to end into a durable node, 300 bytes each, {store.title}"
    found = table(store.named("stream-rate"), title, "events/s", figures, list(figures), BARE)
    best = "batched, 8 channels"
    found.goals.append(at_least("batched, 8 channels", figures[best], 50_000, " events/s"))
    sender_us, node_us = (spread(each, " µs") for each in costs[best])
    found.notes.append(f"processor time of an event, {best}: {sender_us} at the sender, {node_us} at the node")
    found.notes.append(f"records a message, batched: {', '.join(f'{size:.0f}' for size in list(sizes.values())[2:5])}")
    found.notes.append("one sender's process for all channels; it emits and spools as well; all on one machine")
    return found


async def _latency(store: Store, ours: SenderProcess, bare: SenderProcess, rounds: int, events: int) -> Table:
    async def turn_of(name: str, made: SenderProcess) -> Mapping[str, float]:
        parts = quantiles((await made.do("latency", events))["ms"], n=100)
        return {f"{name}, p50": parts[49], f"{name}, p99": parts[98]}

    async def bare_turn(_: int) -> Mapping[str, float]:
        return await turn_of("bare receiver", bare)

    async def our_turn(_: int) -> Mapping[str, float]:
        return await turn_of("node", ours)

    figures = await interleave([bare_turn, our_turn], rounds)
    title = f"emit → acked, one event at a time over 8 channels, {store.title}"
    found = table(store.named("stream-latency"), title, "ms", figures, list(figures), None)
    found.notes.append("two syncs are in it: the spool's before it is sent, the receiver's before it is acked")
    return found


async def _pauses(store: Store, data: Path, ours: SenderProcess, rounds: int, events: int) -> Table:
    """How long others wait for an answer while evidence comes as fast as it can."""
    storing, resting = "while events come over 8 channels", "nothing to do"

    async def turn(_: int) -> Mapping[str, float]:
        async with probing(data) as probe:
            await asyncio.sleep(REST_S)
            quiet = probe.take_ms()
            await ours.do("rate", events // 50 * 50)
            return {resting: quiet, storing: probe.take_ms()}

    figures = await interleave([turn], rounds)
    title = f"Longest answer of a node, {store.title}"
    found = table(store.named("stream-pauses"), title, "ms", figures, [resting, storing], None)
    found.goals.append(at_most(storing, figures[storing], 50, " ms"))
    found.notes.append("a client asks for the status again and again; a turn of the node's loop delays its answer")
    return found


async def _idle(store: Store, port: int, pid: int, channels: int) -> Table:
    """Channels that have sent one record each and are quiet."""
    dial, talks, before = NodeConnection(f"127.0.0.1:{port}", None), list[RetrovueEvidenceStream](), 0
    for number in range(channels + WARM):
        if number == WARM:
            before = memory_kib(pid)
        talk, channel = RetrovueEvidenceStream(dial), f"idle-{number}"
        await talk.handshake(Hello(channel, "s", 1, 0))
        line = Encoder(channel, "s", number.to_bytes(16, "big")).line(1, 1_771_000_000_123, '"SEGMENT_END"', b"{}")
        await talk.send(1, [line[:-1]])
        while (await talk.receive()).acked != 1:
            pass
        talks.append(talk)
    grown = (memory_kib(pid) - before) / channels
    for talk in talks:
        talk.end()
    await dial.close()
    found = table(
        store.named("stream-idle"),
        f"Memory of the node for an idle channel, {channels} of them, {store.title}",
        "KiB",
        {"a channel with an open stream": [grown]},
        ["a channel with an open stream"],
        None,
    )
    found.notes.append("what the process grew by while they connected, each with a record; no thread for any of them")
    return found
