"""Where the time of a command goes: each piece of its way timed by itself, in microseconds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence

from bench.engine.contestant import ALICE, POLICY, charges, close_engine, decide_batch, ids, new_engine, reserves
from bench.measure import Table, interleave, table
from bench.stores import Store, StorePlace
from holdfast.adapters.files import AtomicFolder
from holdfast.core import journal_codec, state_machine
from holdfast.core.base.event import Command, Decided, Event, JournalHead, head_of
from holdfast.core.base.values import Amount, Term
from holdfast.core.escrow.messages import Mint
from holdfast.core.state import State
from holdfast.core.tables import discard_rows
from holdfast.engine.projector import Projector

PIECES = ("decide", "apply", "pack and hash", "append", "projector: fold and tables")


async def pieces(store: Store, rounds: int, count: int) -> Table:
    """Batches of 1000 cut into pieces, and a single caller's command in an engine for what waiting adds."""
    engine = await new_engine(store.place("where/engine"))

    async def of_batches(number: int) -> Mapping[str, float]:
        found = await _batches(store.place(f"where/pieces{number}"), count, 1_000)
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
    threads = "append and tables run in threads of their own; the projector is a process of its own in a node"
    server = "append and tables are the server's and the wire's; the projector is a process of its own in a node"
    found.notes.append(threads if store.server is None else server)
    return found


async def _each(count: int, ask: Callable[[], object]) -> float:
    began = time.perf_counter()
    for _ in range(count):
        await ask()  # type: ignore[misc]
    return (time.perf_counter() - began) / count * 1e6


class _StageTimer:
    """Adds up the time between marks."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(PIECES, 0.0)
        self._last = time.perf_counter()

    def start(self) -> None:
        self._last = time.perf_counter()

    def record(self, piece: str) -> None:
        now = time.perf_counter()
        self.spent[piece] += now - self._last
        self._last = now


async def _batches(spot: StorePlace, count: int, size: int) -> dict[str, float]:
    journal, tables = spot.open()
    await journal.acquire()
    projector = Projector(journal, tables, AtomicFolder(spot.folder / "snapshots"), POLICY)
    await projector.load()
    state, watch, tip = State(POLICY, touched=discard_rows()), _StageTimer(), JournalHead()
    batch = decide_batch(state, tip, [Mint(os.urandom(32), ALICE, Amount(10**12))])
    await journal.append(batch, ())
    tip, of, waiting = head_of(batch), ids(count), 0
    for at in range(0, count, size):
        for chunk in (reserves(of[at : at + size]), charges(of[at : at + size], 1)):
            events, now_ms = _decide_and_apply(state, chunk, watch)
            batch = journal_codec.pack(tip, Term(1), events, now_ms)
            watch.record("pack and hash")
            await journal.append(batch, ())
            watch.record("append")
            tip = head_of(batch)
            waiting += 1
        if waiting >= 8 or at + size >= count:
            watch.start()
            await projector.catch_up()
            watch.record("projector: fold and tables")
            waiting = 0
    await tables.close()
    await journal.close()
    return {piece: spent / (2 * count) * 1e6 for piece, spent in watch.spent.items()}


def _decide_and_apply(state: State, commands: Sequence[Command], watch: _StageTimer) -> tuple[list[Event], int]:
    """All decisions first, then all effects, so that each can be timed without timing every call."""
    now_ms = time.time_ns() // 1_000_000
    watch.start()
    decisions = [state_machine.decide(state, command, now_ms) for command in commands]
    watch.record("decide")
    events = [event for decided in decisions if isinstance(decided, Decided) for event in decided.events]
    assert len(events) == len(commands)
    watch.start()
    for event in events:
        state_machine.apply(state, event)
    watch.record("apply")
    return events, now_ms
