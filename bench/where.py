"""Where the time of a command goes: each piece of its way timed by itself, in microseconds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence

from bench.measure import Table, interleave, table
from bench.ours import ALICE, POLICY, charges, close_engine, decide_batch, ids, new_engine, reserves
from bench.stores import Spot, Store
from holdfast.core import law
from holdfast.core.escrow.acts import Mint
from holdfast.core.event import Decided, Event, Tip, tip_of
from holdfast.core.state import State
from holdfast.core.values import Amount, Epoch
from holdfast.engine.history import History
from holdfast.engine.project import Images, by_table, take_images
from holdfast.ports import Tables

PIECES = ("decide", "apply", "pack and hash", "images", "append", "tables", "claims handed over")


async def pieces(store: Store, rounds: int, count: int) -> Table:
    """Batches of 1000 cut into pieces, and a single caller's command in an engine for what waiting adds."""
    engine = await new_engine(store.spot("where/engine"))

    async def of_batches(number: int) -> Mapping[str, float]:
        found = await _batches(store.spot(f"where/pieces{number}"), count, 1_000)
        return {"all pieces": sum(found.values()), **found}

    async def of_answers(number: int) -> Mapping[str, float]:
        """Futures and turns of the loop: submits that change nothing and so wait for no disk."""
        again = reserves(ids(1))[0]
        await engine.submit(again)
        return {"submit of a repeat (no disk)": await _each(count, lambda: engine.submit(again))}

    figures = await interleave((of_batches, of_answers), rounds)
    await close_engine(engine)
    order = ["all pieces", *PIECES, "submit of a repeat (no disk)"]
    found = table(
        store.named("engine-where"),
        f"Where a command's time goes, batches of 1000, {store.title}",
        "µs/command",
        figures,
        order,
        order[0],
    )
    threads = "append and tables run in their own threads; all others share the event loop's"
    server = "append and tables are the server's and the wire's; encoding their rows shares the event loop's thread"
    found.notes.append(threads if store.server is None else server)
    return found


async def _each(count: int, ask: Callable[[], object]) -> float:
    began = time.perf_counter()
    for _ in range(count):
        await ask()  # type: ignore[misc]
    return (time.perf_counter() - began) / count * 1e6


class _Watch:
    """Adds up the time between marks."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(PIECES, 0.0)
        self._last = time.perf_counter()

    def start(self) -> None:
        self._last = time.perf_counter()

    def mark(self, piece: str) -> None:
        now = time.perf_counter()
        self.spent[piece] += now - self._last
        self._last = now


async def _batches(spot: Spot, count: int, size: int) -> dict[str, float]:
    journal, tables = spot.open()
    await journal.own()
    await tables.open()
    state, history, watch, tip = State(POLICY), History(tables), _Watch(), Tip()
    decide_batch(state, tip, [Mint(os.urandom(32), ALICE, Amount(10**12))])
    of = ids(count)
    waiting: list[Images] = []
    for at in range(0, count, size):
        for lot in (reserves(of[at : at + size]), charges(of[at : at + size], 1)):
            events, now_ms = _decide_and_apply(state, lot, watch)
            batch = law.pack(tip, Epoch(1), events, now_ms)
            watch.mark("pack and hash")
            images = take_images(state)
            watch.mark("images")
            await journal.append(batch, ())
            watch.mark("append")
            tip = tip_of(batch)
            waiting.append(images)
        if len(waiting) >= 8:
            await _project(tables, history, state, tip, waiting, watch)
    if waiting:
        await _project(tables, history, state, tip, waiting, watch)
    await tables.close()
    await journal.close()
    return {piece: spent / (2 * count) * 1e6 for piece, spent in watch.spent.items()}


def _decide_and_apply(state: State, lot: Sequence[law.Command], watch: _Watch) -> tuple[list[Event], int]:
    """All decisions first, then all effects, so that each can be timed without timing every call."""
    now_ms = time.time_ns() // 1_000_000
    watch.start()
    decisions = [law.decide(state, command, now_ms) for command in lot]
    watch.mark("decide")
    events = [event for decided in decisions if isinstance(decided, Decided) for event in decided.events]
    assert len(events) == len(lot)
    watch.start()
    for event in events:
        law.apply(state, event)
    watch.mark("apply")
    return events, now_ms


async def _project(
    tables: Tables, history: History, state: State, tip: Tip, waiting: list[Images], watch: _Watch
) -> None:
    """What the projector does with some batches at once: the newest row of each record, and all claims."""
    watch.start()
    rows = {key: row for images in waiting for key, row in images.rows.items()}
    claims = [claim for images in waiting for claim in images.claims]
    await tables.write(by_table(rows), claims, tip)
    watch.mark("tables")
    history.hand_over(state, (key for key, _ in claims))
    watch.mark("claims handed over")
    waiting.clear()
