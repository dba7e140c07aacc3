"""The HTTP server against a bare Starlette handler on the same uvicorn: reads, writes, WebSockets, many followers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from statistics import median

from bench.api import clients
from bench.api.servers import ServerProcess, running_server
from bench.measure import Table, at_least, interleave, show, table

BARE = "bare Starlette handler"
BARE_WEBSOCKET = "bare Starlette WebSocket"
STATUS, SHOW, MINT = "node.getStatus", "account.show, with a key", "account.mint, durable"
CALLERS = 16
FOLLOWERS = 1_000


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """All comparisons, each printed as soon as it is measured."""
    rounds, count = (1, 400) if is_quick else (5, 8_000)
    began, tables = time.monotonic(), list[Table]()
    for compare in COMPARISONS:
        found = await compare(folder, rounds, count)
        print(show(found), end="\n\n", flush=True)
        tables.append(found)
    print(f"took {time.monotonic() - began:.0f} s")
    return tables


async def compare_requests(folder: Path, rounds: int, count: int) -> Table:
    """Requests over connections that are kept, 16 callers at a time; and one caller alone."""
    async with running_server("ours", folder / "requests") as ours, running_server("bare") as bare:
        turns = [
            _turn(BARE, clients.posts, bare, clients.show, CALLERS, count),
            _turn(STATUS, clients.posts, ours, clients.status, CALLERS, count),
            _turn(SHOW, clients.posts, ours, clients.show, CALLERS, count),
            _turn(MINT, clients.posts, ours, clients.mint, CALLERS, count),
            _turn(f"{BARE}, 1 caller", clients.posts, bare, clients.show, 1, count // 4),
            _turn(f"{SHOW}, 1 caller", clients.posts, ours, clients.show, 1, count // 4),
        ]
        figures = await interleave(turns, rounds)
    title = f"Requests over HTTP, {CALLERS} callers"
    found = table("api-http", title, "requests/s", figures, list(figures), BARE)
    rows = {row.name: row for row in found.rows}
    found.goals.append(at_least("a read over HTTP to a bare Starlette handler", rows[SHOW].ratios, 0.7))
    return found


async def compare_websockets(folder: Path, rounds: int, count: int) -> Table:
    """The same over WebSockets."""
    async with running_server("ours", folder / "sockets") as ours, running_server("bare") as bare:
        turns = [
            _turn(BARE_WEBSOCKET, clients.messages, bare, clients.show, CALLERS, count),
            _turn(STATUS, clients.messages, ours, clients.status, CALLERS, count),
            _turn(SHOW, clients.messages, ours, clients.show, CALLERS, count),
            _turn(MINT, clients.messages, ours, clients.mint, CALLERS, count),
        ]
        figures = await interleave(turns, rounds)
    title = f"Requests over WebSocket, {CALLERS} connections"
    return table("api-websocket", title, "requests/s", figures, list(figures), BARE_WEBSOCKET)


async def compare_fan_out(folder: Path, rounds: int, count: int) -> Table:
    """Until an event that was asked for over HTTP is at one follower, and at the median and last of a thousand."""
    many = min(FOLLOWERS, count)
    one_row, middle, last = "1 follower", f"the median of {many}", f"the last of {many}"

    async def alone(_: int) -> Mapping[str, float]:
        single = await clients.followers(step.port, 1)
        took = [(await clients.event_latencies(step.port, single))[0] for _ in range(10)]
        single[0].close()
        return {one_row: 1_000 * median(took)}

    async def together(_: int) -> Mapping[str, float]:
        before = step.memory_kib()
        all_ = await clients.followers(step.port, many)
        kib.append((step.memory_kib() - before) / many)
        took = [await clients.event_latencies(step.port, all_) for _ in range(5)]
        for each in all_:
            each.close()
        return {
            middle: 1_000 * median(each[many // 2] for each in took),
            last: 1_000 * median(each[-1] for each in took),
        }

    kib: list[float] = []
    async with running_server("ours", folder / "followers") as step:
        figures = await interleave([alone, together], rounds)
    found = table("api-followers", "From asking to an event at its followers", "ms", figures, list(figures), None)
    found.notes.append(f"memory of the node a follower, first round: {kib[0]:.1f} KiB, later rounds use it again")
    return found


def _turn(
    name: str,
    send: Callable[[int, clients.Write, int, int], Awaitable[float]],
    server: ServerProcess,
    write: clients.Write,
    callers: int,
    count: int,
) -> Callable[[int], Awaitable[Mapping[str, float]]]:
    async def turn(_: int) -> Mapping[str, float]:
        return {name: await send(server.port, write, callers, count)}

    return turn


COMPARISONS: tuple[Callable[[Path, int, int], Awaitable[Table]], ...] = (
    compare_requests,
    compare_websockets,
    compare_fan_out,
)
"""What is measured, in this order; a further one is a function and an entry here."""
