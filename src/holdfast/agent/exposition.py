"""What a sender of evidence counts, as Prometheus reads it, on a loopback port that answers nothing else (OBS-001)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from holdfast.agent.tally import Tally
from holdfast.spool import Spool
from holdfast.spool.metrics import Histogram

HEAD: Final = (
    b"HTTP/1.1 %s\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
)
REQUEST_BYTES_MAX: Final = 16 << 10
READ_S: Final = 5.0
COUNTED: Final = {
    "streams": "Streams that were opened.",
    "replays": "Streams that began with records which the node did not have.",
    "records": "Records that were sent.",
    "duplicates": "Records that may have been sent before.",
    "acks": "Acks that moved a mark.",
    "gaps": "How often the node missed something.",
    "credit_stalls": "How often something ready had to wait for room.",
    "stand_stills": "Streams that were cut because acks stood still.",
}
LAGGING: Final = {
    "unacked_records": "Spooled and not acked.",
    "oldest_unacked_age_ms": "Age of the oldest record that is not acked.",
    "waiting_records": "Emitted and not spooled yet.",
    "channel_bytes": "Bytes in the folder of the channel.",
}
Open = Callable[[], list[tuple[str, Spool]]]
"""The sessions that are being delivered, each with its spool; the live one first."""


def text(tally: Tally, channel: str, opened: list[tuple[str, Spool]]) -> str:
    return "\n".join([*_lines(tally, channel, opened), ""])


def _lines(tally: Tally, channel: str, opened: list[tuple[str, Spool]]) -> Iterator[str]:
    for name, says in COUNTED.items():
        yield from _head(f"holdfast_sender_{name}_total", says, "counter")
        yield f"holdfast_sender_{name}_total {getattr(tally, name)}"
    yield from _head("holdfast_sender_refused_total", "Noes of the node, by name.", "counter")
    for reason, count in sorted(tally.refused.items()):
        yield f'holdfast_sender_refused_total{{name="{_quoted(reason)}"}} {count}'
    for name, says, sizes in (
        ("batch_records", "Records in a message.", tally.batch_records),
        ("batch_bytes", "Bytes of records in a message.", tally.batch_bytes),
    ):
        yield from _histogram(f"holdfast_sender_{name}", says, sizes)
    readings = [(session, spool.metrics()) for session, spool in opened]
    for name, says in LAGGING.items():
        yield from _head(f"holdfast_sender_{name}", says, "gauge")
        for session, reading in readings:
            yield f'holdfast_sender_{name}{{channel="{channel}",session="{session}"}} {getattr(reading, name)}'


def _head(name: str, says: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {says}"
    yield f"# TYPE {name} {kind}"


def _histogram(name: str, says: str, sizes: Histogram) -> Iterator[str]:
    """Bounds are powers of two; those above the largest value are one."""
    yield from _head(name, says, "histogram")
    seen = 0
    for bits in range(sizes.most.bit_length() + 1):
        seen += sizes.buckets[bits]
        yield f'{name}_bucket{{le="{(1 << bits) - 1}"}} {seen}'
    yield f'{name}_bucket{{le="+Inf"}} {sizes.count}'
    yield f"{name}_sum {sizes.total}"
    yield f"{name}_count {sizes.count}"


def _quoted(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")[:100]


class Exposition:
    """The port, while the agent runs."""

    def __init__(self, tally: Tally, channel: str, opened: Open) -> None:
        self._tally, self._channel, self._opened = tally, channel, opened
        self._server: asyncio.Server | None = None

    async def open(self, port: int) -> int:
        """Where it listens; 0 takes a port that is free. On the loopback, since nobody is asked who they are."""
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", port, limit=REQUEST_BYTES_MAX)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_S):
                asked = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answered(asked.split(b" ")[:2]))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answered(self, asked: list[bytes]) -> bytes:
        if asked != [b"GET", b"/metrics"]:
            return HEAD % (b"404 Not Found", 0)
        body = text(self._tally, self._channel, self._opened()).encode()
        return HEAD % (b"200 OK", len(body)) + body
