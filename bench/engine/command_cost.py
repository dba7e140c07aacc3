"""What a command costs in processor time: by the owner, the journal's writer, the projector, and SQL by hand."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import count

from bench.engine.contestant import bulk, ids, new_engine, reserves, settle
from bench.engine.opened import close_engine
from bench.measure import Table, interleave, table
from bench.processor_time import PartTimes
from bench.stores import Store

HAND = "hand-written SQL, its thread"
OWNER, JOURNAL, PROJECTOR = "owner", "journal's writer", "projector"
REPEAT = "submit of a repeat (no disk), wall"


async def compare_command_costs(store: Store, rounds: int, pairs: int) -> Table:
    """Bulks of 1000 until they are in the tables."""
    hand, engine = await store.open_baseline("cost/hand"), await new_engine(store.place("cost/engine"))
    heights = count(1)

    async def of_hand(_: int) -> Mapping[str, float]:
        began = time.thread_time()
        await hand.run(ids(pairs), 1000)
        return {HAND: (time.thread_time() - began) / (2 * pairs) * 1e6}

    async def of_engine(_: int) -> Mapping[str, float]:
        used, height = PartTimes(), next(heights)
        await bulk(engine, pairs, 1_000, height)
        spent = {OWNER: used.owner_s(), JOURNAL: used.journal_s(), PROJECTOR: used.projector_s()}
        await settle(engine, height)
        return {name: seconds / (2 * pairs) * 1e6 for name, seconds in spent.items()}

    async def of_answers(_: int) -> Mapping[str, float]:
        """Futures and turns of the loop: submits that change nothing and so wait for no disk."""
        again = reserves(ids(1))[0]
        await engine.submit(again)
        began = time.perf_counter()
        for _ in range(pairs):
            await engine.submit(again)
        return {REPEAT: (time.perf_counter() - began) / pairs * 1e6}

    figures = await interleave((of_hand, of_engine, of_answers), rounds)
    await close_engine(engine)
    await hand.close()
    title = f"Processor time of a command, bulks of 1000, {store.title}"
    order = [HAND, OWNER, JOURNAL, PROJECTOR, REPEAT]
    found = table(store.named("engine-cost"), title, "µs/command", figures, order, HAND)
    found.notes.append("projector: the threads named for the tables and all child processes; the server is not in it")
    return found
