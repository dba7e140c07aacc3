"""Outboxes in a process of their own that ship to a receiver: how many events a second, how long until one is acked.

`python -m bench.stream.sender_process PORT PROTOCOL CHANNELS FOLDER` reads one JSON order a line from its standard input and
prints one JSON answer a line: emit N records and wait for all acks, or time single events, or say how much memory it has.
"""  # noqa: E501

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from functools import partial
from pathlib import Path
from random import randrange
from typing import Any

import msgspec
import structlog

from holdfast.adapters.clock import MachineClock
from holdfast.adapters.keys.signing import SigningKey
from holdfast.agent.settings import AgentSettings
from holdfast.agent.transport.node_client import NodeClient
from holdfast.core.base.values import Kind
from holdfast.core.provider.model import provider_id
from holdfast.shipping.backoff import Backoff
from holdfast.shipping.evidence_transport import NodeEvidenceStream, OpenStream
from holdfast.shipping.node_connection import NodeConnection
from holdfast.shipping.retrovue_transport import RetrovueEvidenceStream
from holdfast.shipping.sender_metrics import SenderMetrics
from holdfast.shipping.session_sender import SessionSender
from holdfast.spool import Refused, Spool, SpoolPolicy, Ticket
from holdfast.spool.files.record import Encoder

POLICY = SpoolPolicy(channel_bytes_max=4 << 30)
BYTES = 300
BATCH = 50
"""Records emitted into a channel before the next one has its turn."""
BACKLOG = 100_000
"""How many records may be ahead of their acks."""


class BenchChannel:
    """One outbox on its way."""

    def __init__(self, name: str, spool: Spool, sender: SessionSender) -> None:
        self.name, self.spool, self.delivery, self.last = name, spool, sender, 0

    def emit(self, payload: object) -> int:
        """Until it is taken; the last sequence."""
        while not isinstance(ticket := self.spool.emit("SEGMENT_END", payload), Ticket):
            time.sleep(0.001)
        self.last = ticket.sequence
        return ticket.sequence


class BenchSender:
    """All channels of this process."""

    def __init__(self, port: int, protocol: str, folder: Path) -> None:
        self.address, self.protocol, self.folder = f"127.0.0.1:{port}", protocol, folder
        self.dial, self.metrics, self.clock = NodeConnection(self.address, None), SenderMetrics(), MachineClock()
        self.channels: list[BenchChannel] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.payload: dict[str, str] = {}

    async def open(self, count: int, session: str) -> None:
        for number in range(count):
            name, transport = await self._known(number)
            spool = await asyncio.to_thread(partial(Spool.open, name, session, root=self.folder, policy=POLICY))
            assert not isinstance(spool, Refused), spool
            sender = SessionSender(
                channel=name,
                session=session,
                spool=spool,
                open_stream=transport,
                backoff=Backoff(10, 100, randrange),
                metrics=self.metrics,
            )
            self.channels.append(BenchChannel(name, spool, sender))
            self._tasks.append(asyncio.create_task(sender.run(self.clock)))
        self.payload = _payload_for(self.channels[0].name, session)

    async def _known(self, number: int) -> tuple[str, OpenStream]:
        if self.protocol == "retrovue":
            return f"air-{number}", partial(RetrovueEvidenceStream, self.dial)
        key = SigningKey.from_seed(number.to_bytes(32, "big"))
        if self.protocol == "holdfast":
            settings = AgentSettings(
                node=self.address, data=self.folder, name=f"p{number}", account=f"p{number}", models=("echo",)
            )
            capabilities = {str(Kind.AI): {"models": ["echo"]}}
            client = NodeClient(
                connection=self.dial, settings=settings, capabilities=capabilities, signer=key, clock=self.clock
            )
            await client.register()
        return provider_id(key.public).hex(), partial(NodeEvidenceStream, self.dial, key)

    # ------------------------------------------------------------------------------------ orders

    async def rate(self, events: int) -> dict[str, Any]:
        """Events a second from the first emit to the last ack; records a message."""
        before, spent = self.metrics.batch_records.count, time.process_time()
        emitting = threading.Thread(target=self._emit, args=(events,))
        began = time.perf_counter()
        emitting.start()
        await asyncio.to_thread(emitting.join)
        emitted = time.perf_counter() - began
        await asyncio.gather(*(each.delivery.wait_acked(each.last) for each in self.channels))
        took = time.perf_counter() - began
        messages, used_us = self.metrics.batch_records.count - before, 1e6 * (time.process_time() - spent)
        return {"rate": events / took, "a_message": events / messages, "emit": events / emitted, "us": used_us / events}

    def _emit(self, events: int) -> None:
        chunks, count = events // BATCH, len(self.channels)
        for chunk in range(chunks):
            channel = self.channels[chunk % count]
            while channel.last - channel.spool.acked_sequence > BACKLOG // count:
                time.sleep(0.001)
            for _ in range(BATCH):
                channel.emit(self.payload)

    async def latency(self, events: int) -> dict[str, Any]:
        """Milliseconds from emit to ack, one event at a time."""
        found = []
        for number in range(events):
            channel = self.channels[number % len(self.channels)]
            began = time.perf_counter()
            await channel.delivery.wait_acked(channel.emit(self.payload))
            found.append(1_000 * (time.perf_counter() - began))
        return {"ms": found}

    async def idle(self, _: int) -> dict[str, Any]:
        """Every channel has sent something and is quiet."""
        for each in self.channels:
            each.emit(self.payload)
        await asyncio.gather(*(each.delivery.wait_acked(each.last) for each in self.channels))
        gc.collect()
        return {"kib": memory_kib("self")}

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for each in self.channels:
            await each.spool.aclose()
        await self.dial.close()


def _payload_for(channel: str, session: str) -> dict[str, str]:
    """So long that the record's line has 300 bytes, and such that v0.1 can say it."""
    line = Encoder(channel, session, bytes(16)).line(10_000, 1_771_000_000_123, '"SEGMENT_END"', b'{"block_id":""}')
    return {"block_id": "x" * max(0, BYTES - len(line))}


def memory_kib(pid: object) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


async def main(port: str, protocol: str, count: str, folder: str) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # answers alone go to the other one
    sender = BenchSender(int(port), protocol, Path(folder))
    loop = asyncio.get_running_loop()
    began_kib = memory_kib("self")
    await sender.open(int(count), f"s{time.time_ns()}")
    gc.collect()
    gc.freeze()
    print(msgspec.json.encode({"kib": began_kib}).decode(), flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = msgspec.json.decode(line)
        answer = await getattr(sender, order["do"])(order["events"])
        print(msgspec.json.encode(answer).decode(), flush=True)
    await sender.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
