"""The demo's acts in order: each has a title, a first sentence, and a function that runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha3_256
from typing import Final, NamedTuple

from holdfast.client import AsyncClient
from holdfast.demo.archive_act import archive_outputs, start_archive
from holdfast.demo.fault_injection import VICTIM, kill_agent, kill_node
from holdfast.demo.faults import ARCHIVE_FAULTS, DEFAULT_FAULTS, FaultKind
from holdfast.demo.final_checks import run_final_checks
from holdfast.demo.jobs import COUNT, MAX_FEE, OWN_COMMAND, REQUESTER
from holdfast.demo.receipts import RequestRecord, RequestStatus
from holdfast.demo.run import DemoRun
from holdfast.demo.screen.board import AGENTS, StateGlyph

MINTED: Final = 1_000_000


class Act(NamedTuple):
    """One act of the demo."""

    title: str
    sentence: str
    run: Callable[[DemoRun], Awaitable[None]]


async def run_scenario(demo: DemoRun, faults: Sequence[FaultKind] = DEFAULT_FAULTS) -> None:
    """Run all acts in order. The outcome is on the board."""
    acts = acts_of(faults)
    demo.board.acts_total, demo.board.faults_planned = len(acts), len(faults)
    for fault in ARCHIVE_FAULTS.intersection(faults):
        await start_archive(demo, fault)
    for number, act in enumerate(acts, start=1):
        demo.board.act, demo.board.title = number, act.title
        demo.set_sentence(act.sentence)
        await act.run(demo)


async def submit_jobs(demo: DemoRun) -> None:
    took_s = await demo.start_node()
    demo.report(StateGlyph.CONFIRMED, f"the node is up after {took_s:.1f} s")
    demo.start_following()
    await demo.call("account.mint", id=_request_id("mint", REQUESTER), owner=REQUESTER, amount=MINTED)
    async with AsyncClient(demo.data) as node:
        for job in demo.board.jobs:
            demo.receipts.append(RequestRecord(RequestStatus.REQUESTED, job.number))
            request = node.enqueue(job.payload, MAX_FEE, caller=REQUESTER, input=job.input, idempotency_key=job.key)
            receipt = await demo.complete_within(request, "the node gives a receipt")
            demo.receipts.append(
                RequestRecord(RequestStatus.CONFIRMED, job.number, receipt.task_id, receipt.event, receipt.is_repeat)
            )
            await demo.tick()
    await demo.wait_for(lambda: len(demo.board.history.jobs) == COUNT, "every job is in the events")
    demo.set_sentence(_RECEIPTS)
    reserved = demo.board.history.totals["reserved"]
    demo.report(StateGlyph.HELD, f"{demo.board.submitted} receipts; {reserved:,} reserved; no provider works yet")
    await demo.pause(0.06)


async def lease_and_seal(demo: DemoRun) -> None:
    for name in AGENTS:
        demo.report(StateGlyph.IN_FLIGHT, f"{name} starts, pid {demo.start_agent(name)}")
    board = demo.board
    await demo.wait_for(lambda: len(board.history.names) == len(AGENTS), "every agent registers")
    await _stake_providers(demo)
    await demo.wait_for(lambda: len(board.history.active) == len(AGENTS), "every provider becomes active")
    demo.report(
        StateGlyph.CONFIRMED, f"{', '.join(AGENTS)}: registered, staked, active; each with --exec '{OWN_COMMAND}'"
    )
    first = await demo.wait_for(lambda: next(board.history.live_leases(), None), "a first lease")
    provider = board.history.name_of(first.provider)
    demo.report(StateGlyph.IN_FLIGHT, f"{board.job_name(first.task_id)} leased to {provider}, attempt {first.attempt}")
    done = await demo.wait_for(lambda: next(board.history.resolved_jobs(), None), "a first result in a sealed block")
    height = done.accepted[0].height
    demo.report(StateGlyph.CONFIRMED, f"block {height} holds the proof of {board.job_name(done.id)}")
    await demo.pause(0.08)


async def _stake_providers(demo: DemoRun) -> None:
    """Sample money for every provider, and its minimum stake (MAT-002)."""
    for view in (await demo.call("aicf.listProviders"))["providers"]:
        id_, account, amount = view["provider"]["id"], view["provider"]["account"], view["stake_min"]
        await demo.call("account.mint", id=_request_id("mint", account), owner=account, amount=amount)
        await demo.call("provider.stake", provider_id=id_, amount=amount, request=_request_id("stake", account))


def _request_id(*words: str) -> str:
    return sha3_256(" ".join(("holdfast demo", *words)).encode()).hexdigest()


_RECEIPTS: Final = f"You handed over {COUNT} jobs and got {COUNT} receipts. The queue holds them now."

BEGINNING: Final = (
    Act(f"{COUNT} jobs, {COUNT} receipts", "A node starts. No provider works for it yet.", submit_jobs),
    Act("leases and first blocks", "A result counts only when a block holds its proof.", lease_and_seal),
)
FAULT_ACTS: Final = {
    FaultKind.AGENT: Act(
        f"kill -9 of {VICTIM} in mid-job", f"Now {VICTIM} is killed in the middle of a job.", kill_agent
    ),
    FaultKind.NODE: Act("kill -9 of the node", "Now the node is killed while the agents work.", kill_node),
    FaultKind.ARCHIVE_REFUSES: Act(
        "the archive refuses, then heals", "Now the archive has no room for the outputs.", archive_outputs
    ),
    FaultKind.ARCHIVE_LIES: Act(
        "the archive lies, then heals", "Now the archive returns other bytes than it was given.", archive_outputs
    ),
}
END: Final = Act("the proof", "Do not believe the demo: check it.", run_final_checks)


def acts_of(faults: Sequence[FaultKind]) -> list[Act]:
    return [*BEGINNING, *(FAULT_ACTS[kind] for kind in FaultKind if kind in faults), END]
