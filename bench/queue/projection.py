"""What the projector alone takes for a whole life: a stored journal folded into empty tables, nothing beside it."""

from __future__ import annotations

import time
from collections.abc import Mapping

from bench.engine.opened import SNAPSHOTS, close_engine
from bench.measure import Table, at_most, interleave, table
from bench.queue import contestant as ours
from bench.stores import Store
from holdfast.adapters.files import AtomicFolder
from holdfast.engine.projection.projector import Projector

WHOLE, WRITING = "the projector alone", "of it, writing"


async def compare_projection(store: Store, rounds: int, many: int, size: int) -> Table:
    """Processor time of a life in the tables' process, without an owner that competes for the machine's caches."""
    spot = store.place("projection/ours")
    engine = await ours.open_engine_with_providers(spot)
    await ours.run_lives(engine, ours.make_enqueues(engine, many), size)
    await close_engine(engine)

    async def fold(_: int) -> Mapping[str, float]:
        journal, tables = spot.open()
        await tables.drop()
        writing, write = 0.0, tables.write

        async def timed_write(*args: object, **named: object) -> None:
            nonlocal writing
            began = time.process_time()
            await write(*args, **named)  # type: ignore[arg-type]
            writing += time.process_time() - began

        tables.write = timed_write  # type: ignore[method-assign]
        projector = Projector(journal, tables, AtomicFolder(spot.folder / SNAPSHOTS), ours.policy_without_limits())
        await projector.load()
        began = time.process_time()
        await projector.catch_up()
        whole = time.process_time() - began
        assert projector.checkpoint == await journal.tip()
        await tables.close()
        await journal.close()
        return {WHOLE: whole / many * 1e6, WRITING: writing / many * 1e6}

    figures = await interleave((fold,), rounds)
    title = f"Folding {many} whole lives of a journal into empty tables, {store.title}"
    made = table(store.named("queue-projection"), title, "µs/job", figures, [WHOLE, WRITING], None)
    made.goals.append(at_most(WHOLE, figures[WHOLE], 45, " µs"))
    made.notes.append("of this process, which has nothing else to do; PostgreSQL's server is not in it")
    return made
