"""What the demo plays, as a list: each act has a title, the sentence on screen, and what happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from holdfast.cli.demonstration import history, proof
from holdfast.cli.demonstration.board import CUSTOMERS, Check, Mark
from holdfast.cli.demonstration.customer import REQUESTER
from holdfast.cli.demonstration.stage import FAULTS, Stage
from holdfast.cli.demonstration.verdict import judge


class Act(NamedTuple):
    """One part of the story."""

    title: str
    sentence: str
    play: Callable[[Stage], Awaitable[None]]


async def perform(stage: Stage) -> None:
    """All acts in order. Whether all is well is then on the board."""
    stage.board.acts = len(ACTS)
    for number, act in enumerate(ACTS, start=1):
        stage.board.act, stage.board.title = number, act.title
        stage.say(act.sentence)
        await act.play(stage)


async def money_moves(stage: Stage) -> None:
    took_s = await stage.start_node()
    stage.tell(Mark.CONFIRMED, f"the node is up after {took_s:.2f} s")
    stage.watch()
    note = await stage.mint()
    stage.tell(Mark.CONFIRMED, f"{note.amount:,} minted for {REQUESTER}, event {note.event}")
    stage.start_customers()
    stage.tell(Mark.IN_FLIGHT, f"{len(CUSTOMERS)} clients start: reserve, charge, refund")
    await stage.until_all_go_on()
    stage.tell(Mark.CONFIRMED, f"{', '.join(CUSTOMERS)}: all are answered")
    await stage.pause(0.2)


async def kill_the_node(stage: Stage) -> None:
    for number in range(1, FAULTS + 1):
        await stage.until_all_go_on(more=5)
        await stage.pause(0.07)
        await _kill_once(stage, number)
        await _bring_back(stage)
    await stage.pause(0.08)


async def _kill_once(stage: Stage, number: int) -> None:
    pid = stage.children.kill("node")
    stage.board.node = (Mark.STUCK, f"killed, pid {pid}")
    stage.say(_GONE)
    await stage.tick()  # reads what the clients had written down by now
    stage.tell(Mark.STUCK, f"kill -9 {pid}, fault {number} of {FAULTS}: {stage.board.in_flight} commands in flight")
    verdict = judge(stage.board.notes, await history.from_disk(stage.config))
    stage.show_verdict(verdict)
    mark = Mark.CONFIRMED if verdict.is_good else Mark.STUCK
    kept = verdict.confirmed - len(verdict.lost)
    stage.tell(mark, f"on its disk: {kept:,} of {verdict.confirmed:,} confirmed")
    await stage.pause(0.07)


async def _bring_back(stage: Stage) -> None:
    repeats = stage.board.repeats
    took_s = await stage.start_node()
    stage.recovered_s.append(took_s)
    stage.say(_AGAIN)
    stage.tell(Mark.CONFIRMED, f"back {took_s:.2f} s after its start")
    await stage.until_all_go_on()
    known = stage.board.repeats - repeats
    done = f"; {known} had been done, not done twice" if known else ""
    stage.tell(Mark.CONFIRMED, f"all clients asked again and go on{done}")


async def prove_it(stage: Stage) -> None:
    await stage.stop_customers()
    stage.tell(Mark.LET_GO, "the clients have finished")
    seen = await stage.within(history.from_node(stage.data), "the node tells its events")
    await stage.stop_watching(seen)
    notes = stage.board.notes
    verdict = judge(notes, seen)
    stage.show_verdict(verdict)
    kept = verdict.confirmed - len(verdict.lost)
    await _show(stage, Check("confirmed, and in the events", f"{kept:,} of {verdict.confirmed:,}", not verdict.lost))
    await _show(stage, Check("done twice", f"{len(verdict.twice)} of {len(seen.deeds):,} deeds", not verdict.twice))
    await _show(stage, await stage.within(proof.ask_for_holds(stage.data, notes), "the node tells its holds"))
    for check in await stage.within(proof.add_up_money(stage.data, seen), "the node tells its accounts"):
        await _show(stage, check)
    live = await stage.within(proof.live_digest(stage.data), "the node tells its digest")
    await asyncio.to_thread(stage.children.stop, "node")
    stage.board.node = (Mark.LET_GO, "stopped")
    await _show(stage, await proof.fold_journal(stage.config, live))
    times = ", ".join(f"{took_s:.2f}" for took_s in stage.recovered_s)
    faults = seen.epochs - 1
    await _show(stage, Check("faults survived", f"{faults}, back after {times} s", faults >= FAULTS))


async def _show(stage: Stage, check: Check) -> None:
    stage.board.checks.append(check)
    await stage.pause(0.025)


_GONE: Final = "The node is gone. What it confirmed is not."
_AGAIN: Final = "The clients ask again with the same ids. Nothing is done twice."

ACTS: Final = (
    Act("money moves", "Every answer the clients get is already on disk.", money_moves),
    Act("kill -9 of the node, in mid-load", "Now the node is killed while everybody is asking.", kill_the_node),
    Act("the proof", "Do not believe the demo: check it.", prove_it),
)
