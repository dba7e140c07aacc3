"""The acts that inject faults: an agent is killed in the middle of a job, then the node while agents work."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from holdfast.demo import event_history
from holdfast.demo.event_history import AcceptedProof, ClosedLease, LeaseTrace
from holdfast.demo.faults import AgentKilled, NodeKilled
from holdfast.demo.processes import DemoFailed
from holdfast.demo.receipt_check import check_receipts
from holdfast.demo.run import DemoRun
from holdfast.demo.screen.board import AGENTS, StateGlyph

VICTIM: Final = "ash"
TRIES: Final = 3


# ------------------------------------------------------------------------------------------------ an agent


async def kill_agent(demo: DemoRun) -> None:
    board = demo.board
    lease, closed = await _kill_in_mid_job(demo)
    name = board.job_name(lease.task_id)
    held_s, wait_s = (closed.at_ms - lease.start_ms) / 1000, (closed.not_before_ms - closed.at_ms) / 1000
    demo.report(
        StateGlyph.HELD, f"{name}: {closed.reason} after {held_s:.1f} s; the queue retries it in {wait_s:.1f} s"
    )
    again = await demo.wait_for(lambda: _lease_of_another(demo, lease), f"another provider gets {name}")
    demo.report(
        StateGlyph.IN_FLIGHT, f"{name} leased to {board.history.name_of(again.provider)}, attempt {again.attempt}"
    )
    pid = demo.start_agent(VICTIM)
    demo.report(StateGlyph.CONFIRMED, f"{VICTIM} is started again, pid {pid}, with the spool it had")
    await demo.pause(0.04)


async def _kill_in_mid_job(demo: DemoRun) -> tuple[LeaseTrace, ClosedLease]:
    """The lease that the killed agent had, and its end. If the job was already submitted, the agent is killed again."""
    board = demo.board
    for _ in range(TRIES):
        lease = await demo.wait_for(lambda: _busy_lease(demo, VICTIM), f"{VICTIM} is in the middle of a job")
        name = board.job_name(lease.task_id)
        pid = demo.processes.kill(VICTIM)
        board.agents[VICTIM].state = (StateGlyph.STUCK, f"killed with {name}")
        board.faults_injected[:] = [each for each in board.faults_injected if not isinstance(each, AgentKilled)]
        board.faults_injected.append(AgentKilled(lease.id, lease.task_id, lease.provider))
        demo.set_sentence(f"{VICTIM} is gone. Its job is not.")
        demo.report(StateGlyph.STUCK, f"kill -9 {pid}: {VICTIM} dies in the middle of {name}")
        end = await demo.wait_for(partial(_lease_outcome, demo, lease), f"the lease of {name} ends")
        if isinstance(end, ClosedLease):
            return lease, end
        demo.report(StateGlyph.CONFIRMED, f"{name} was submitted a moment before; trying again")
        demo.start_agent(VICTIM)
    raise DemoFailed(f"{VICTIM} could not be killed in the middle of a job in {TRIES} tries")


def _lease_outcome(demo: DemoRun, lease: LeaseTrace) -> ClosedLease | AcceptedProof | None:
    job = demo.board.history.jobs[lease.task_id]
    closed = next((each.closed for each in job.leases if each.id == lease.id), None)
    return closed or next((proof for proof in job.accepted if proof.lease_id == lease.id), None)


def _lease_of_another(demo: DemoRun, lease: LeaseTrace) -> LeaseTrace | None:
    leases = demo.board.history.jobs[lease.task_id].leases
    return next((each for each in leases if each.provider != lease.provider), None)


def _busy_lease(demo: DemoRun, name: str) -> LeaseTrace | None:
    """A lease that the provider has acked and whose job will not end soon."""
    now_ms = time.time() * 1000
    for lease in demo.board.history.live_leases_of(name):
        job = demo.board.job_of(lease.task_id)
        if lease.acked_ms is None or lease.submitted_ms is not None or job is None:
            continue
        if lease.acked_ms + job.duration_ms / 2 > now_ms:
            return lease
    return None


# ------------------------------------------------------------------------------------------------ the node


async def kill_node(demo: DemoRun) -> None:
    board = demo.board
    working = await demo.wait_for(lambda: _two_busy_agents(demo), "two agents are in the middle of a job")
    pid = demo.processes.kill("node")
    board.node = (StateGlyph.STUCK, f"killed, pid {pid}")
    board.faults_injected.append(NodeKilled(board.history.last))
    demo.report(StateGlyph.STUCK, f"kill -9 {pid}: the node dies while {' and '.join(working)} work for it")
    await _check_disk(demo)
    await demo.wait_for(lambda: any(board.unacked(name) for name in working), "the agents' spools grow")
    await demo.pause(0.05)
    await demo.refresh_spools()
    spooled = {session: last for panel in board.agents.values() for session, last in panel.spooled.items()}
    for name in AGENTS:
        if count := board.unacked(name):
            demo.report(
                StateGlyph.IN_FLIGHT, f"{name} works on; its spool keeps {_records(count)} the node does not have"
            )
    demo.set_sentence("The agents kept every record until the node said: I have it.")
    took_s = await demo.start_node()
    demo.recovered_s.append(took_s)
    demo.report(StateGlyph.CONFIRMED, f"the node is back {took_s:.1f} s after its start")
    await demo.wait_for(lambda: _has_arrived(demo, spooled), "every spooled record arrives")
    _report_resent(demo)
    await demo.pause(0.04)


def _records(count: int) -> str:
    return "1 record that" if count == 1 else f"{count} records that"


def _two_busy_agents(demo: DemoRun) -> list[str] | None:
    busy = [name for name in AGENTS if _busy_lease(demo, name)]
    return busy if len(busy) >= 2 else None


async def _check_disk(demo: DemoRun) -> None:
    """Compare what the killed node left on its disk with the requester's receipts."""
    left = await event_history.read_from_journal(demo.config)
    verdict = check_receipts(demo.board.records, left)
    kept = verdict.receipts - len(verdict.lost)
    state = StateGlyph.CONFIRMED if verdict.is_good else StateGlyph.STUCK
    proofs = sum(len(job.accepted) for job in left.jobs.values())
    demo.report(state, f"on its disk: {kept} of {verdict.receipts} receipts, {proofs} accepted proofs")


def _has_arrived(demo: DemoRun, spooled: dict[str, int]) -> bool:
    seen = demo.board.history
    return len(seen.ownership_events) > 1 and all(
        seen.watermarks.get(session, 0) >= last for session, last in spooled.items()
    )


def _report_resent(demo: DemoRun) -> None:
    """For every session, the first record after the restart follows the watermark from before."""
    seen = demo.board.history
    for session, first in seen.resumed.items():
        name = seen.name_of(session.partition("/")[0])
        demo.report(
            StateGlyph.CONFIRMED, f"{name} resumes from the watermark {first - 1}, now at {seen.watermarks[session]}"
        )
