"""What the demo plays, as a list: each act has a title, a first sentence, and what happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha3_256
from typing import Final, NamedTuple

from holdfast.cli.demonstration.board import AGENTS, Mark
from holdfast.cli.demonstration.breaking import VICTIM, kill_an_agent, kill_the_node
from holdfast.cli.demonstration.jobs import COUNT, MAX_FEE, REQUESTER
from holdfast.cli.demonstration.notebook import Note, Said
from holdfast.cli.demonstration.proof import prove_it
from holdfast.cli.demonstration.stage import Stage
from holdfast.client import Client

MINTED: Final = 1_000_000


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


async def hand_over(stage: Stage) -> None:
    took_s = await stage.start_node()
    stage.tell(Mark.CONFIRMED, f"the node is up after {took_s:.1f} s")
    stage.watch()
    await stage.ask("account.mint", id=_request("mint", REQUESTER), owner=REQUESTER, amount=MINTED)
    async with Client(stage.data) as node:
        for job in stage.board.jobs:
            stage.notebook.write(Note(Said.ASKED, job.number))
            asking = node.enqueue(job.payload, MAX_FEE, REQUESTER, job.key)
            receipt = await stage.within(asking, "the node gives a receipt")
            told = (receipt["task_id"], receipt["event"], receipt["is_repeat"])
            stage.notebook.write(Note(Said.CONFIRMED, job.number, *told))
            await stage.tick()
    await stage.until(lambda: len(stage.board.history.jobs) == COUNT, "the events tell of every job")
    stage.say(_RECEIPTS)
    reserved = stage.board.history.totals["reserved"]
    stage.tell(Mark.HELD, f"{stage.board.submitted} receipts; {reserved:,} reserved; nobody works yet")
    await stage.pause(0.06)


async def lease_and_seal(stage: Stage) -> None:
    for name in AGENTS:
        stage.tell(Mark.IN_FLIGHT, f"{name} starts, pid {stage.start_agent(name)}")
    board = stage.board
    await stage.until(lambda: len(board.history.names) == len(AGENTS), "every agent registers")
    await _stake(stage)
    await stage.until(lambda: len(board.history.active) == len(AGENTS), "every provider becomes active")
    stage.tell(Mark.CONFIRMED, f"{', '.join(AGENTS)}: registered, staked, active")
    first = await stage.until(lambda: next(board.history.live(), None), "a first lease")
    taker = board.history.name_of(first.provider)
    stage.tell(Mark.IN_FLIGHT, f"{board.job_name(first.task_id)} leased to {taker}, attempt {first.attempt}")
    done = await stage.until(lambda: next(board.history.resolved(), None), "a first result in a sealed block")
    height = done.accepted[0].height
    stage.tell(Mark.CONFIRMED, f"block {height} holds the proof of {board.job_name(done.id)}")
    await stage.pause(0.08)


async def _stake(stage: Stage) -> None:
    """Sample money for every provider, and enough of it at stake (MAT-002)."""
    for shown in (await stage.ask("aicf.listProviders"))["providers"]:
        id_, account, amount = shown["provider"]["id"], shown["provider"]["account"], shown["stake_min"]
        await stage.ask("account.mint", id=_request("mint", account), owner=account, amount=amount)
        await stage.ask("provider.stake", provider_id=id_, amount=amount, request=_request("stake", account))


def _request(*words: str) -> str:
    return sha3_256(" ".join(("holdfast demo", *words)).encode()).hexdigest()


_RECEIPTS: Final = f"You handed over {COUNT} jobs and got {COUNT} receipts. The queue holds them now."

ACTS: Final = (
    Act(f"{COUNT} jobs, {COUNT} receipts", "A node starts. Nobody works for it yet.", hand_over),
    Act("leases and first blocks", "A result counts only when a block holds its proof.", lease_and_seal),
    Act(f"kill -9 of {VICTIM} in mid-job", f"Now {VICTIM} is killed in the middle of a job.", kill_an_agent),
    Act("kill -9 of the node", "Now the node is killed while the agents work.", kill_the_node),
    Act("the proof", "Do not believe the demo: check it.", prove_it),
)
