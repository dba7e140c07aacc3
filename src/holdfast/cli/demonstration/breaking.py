"""The acts that break something: an agent dies in the middle of a job, the node dies in the middle of everything."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from holdfast.cli.demonstration import history
from holdfast.cli.demonstration.board import AGENTS, Mark
from holdfast.cli.demonstration.children import Trouble
from holdfast.cli.demonstration.faults import AgentKilled, NodeKilled
from holdfast.cli.demonstration.history import Accepted, Closed, Lease
from holdfast.cli.demonstration.stage import Stage
from holdfast.cli.demonstration.verdict import judge

VICTIM: Final = "ash"
TRIES: Final = 3


# ------------------------------------------------------------------------------------------------ an agent


async def kill_an_agent(stage: Stage) -> None:
    board = stage.board
    lease, closed = await _kill_in_mid_job(stage)
    name = board.job_name(lease.task_id)
    held_s, wait_s = (closed.at_ms - lease.start_ms) / 1000, (closed.not_before_ms - closed.at_ms) / 1000
    stage.tell(Mark.HELD, f"{name}: {closed.reason} after {held_s:.1f} s; the queue tries again in {wait_s:.1f} s")
    again = await stage.until(lambda: _elsewhere(stage, lease), f"another provider gets {name}")
    stage.tell(Mark.IN_FLIGHT, f"{name} leased to {board.history.name_of(again.provider)}, attempt {again.attempt}")
    pid = stage.start_agent(VICTIM)
    stage.tell(Mark.CONFIRMED, f"{VICTIM} is started again, pid {pid}, with the spool it had")
    await stage.pause(0.04)


async def _kill_in_mid_job(stage: Stage) -> tuple[Lease, Closed]:
    """The lease that died with the agent, and its end. An agent that was faster than the kill is killed once more."""
    board = stage.board
    for _ in range(TRIES):
        lease = await stage.until(lambda: _busy(stage, VICTIM), f"{VICTIM} is in the middle of a job")
        name = board.job_name(lease.task_id)
        pid = stage.children.kill(VICTIM)
        board.seats[VICTIM].state = (Mark.STUCK, f"killed with {name}")
        board.faults_made[:] = [AgentKilled(lease.id, lease.task_id, lease.provider)]
        stage.say(f"{VICTIM} is gone. Its job is not.")
        stage.tell(Mark.STUCK, f"kill -9 {pid}: {VICTIM} dies with {name} in its hands")
        end = await stage.until(partial(_end_of, stage, lease), f"the lease of {name} ends")
        if isinstance(end, Closed):
            return lease, end
        stage.tell(Mark.CONFIRMED, f"{name} had been handed in a moment before; once more")
        stage.start_agent(VICTIM)
    raise Trouble(f"{VICTIM} could not be hit in the middle of a job, {TRIES} times")


def _end_of(stage: Stage, lease: Lease) -> Closed | Accepted | None:
    job = stage.board.history.jobs[lease.task_id]
    closed = next((each.closed for each in job.leases if each.id == lease.id), None)
    return closed or next((proof for proof in job.accepted if proof.lease_id == lease.id), None)


def _elsewhere(stage: Stage, lease: Lease) -> Lease | None:
    leases = stage.board.history.jobs[lease.task_id].leases
    return next((each for each in leases if each.provider != lease.provider), None)


def _busy(stage: Stage, name: str) -> Lease | None:
    """A job that the provider has acknowledged and will not finish soon."""
    now_ms = time.time() * 1000
    for lease in stage.board.history.live_of(name):
        job = stage.board.job_of(lease.task_id)
        if lease.acked_ms is None or lease.submitted_ms is not None or job is None:
            continue
        if lease.acked_ms + job.lasts_ms / 2 > now_ms:
            return lease
    return None


# ------------------------------------------------------------------------------------------------ the node


async def kill_the_node(stage: Stage) -> None:
    board = stage.board
    working = await stage.until(lambda: _two_busy(stage), "two agents are in the middle of a job")
    pid = stage.children.kill("node")
    board.node = (Mark.STUCK, f"killed, pid {pid}")
    board.faults_made.append(NodeKilled(board.history.last))
    stage.tell(Mark.STUCK, f"kill -9 {pid}: the node dies while {' and '.join(working)} work for it")
    await _look_at_its_disk(stage)
    await stage.until(lambda: any(board.behind(name) for name in working), "the agents' spools grow")
    await stage.pause(0.05)
    await stage.look_at_spools()
    waiting = {session: last for seat in board.seats.values() for session, last in seat.spooled.items()}
    for name in AGENTS:
        if count := board.behind(name):
            stage.tell(Mark.IN_FLIGHT, f"{name} works on; its spool keeps {_records(count)} the node does not have")
    stage.say("The agents kept every record until the node said: I have it.")
    took_s = await stage.start_node()
    stage.recovered_s.append(took_s)
    stage.tell(Mark.CONFIRMED, f"the node is back {took_s:.1f} s after its start")
    await stage.until(lambda: _has_arrived(stage, waiting), "every kept record arrives")
    _tell_resent(stage)
    await stage.pause(0.04)


def _records(count: int) -> str:
    return "1 record that" if count == 1 else f"{count} records that"


def _two_busy(stage: Stage) -> list[str] | None:
    busy = [name for name in AGENTS if _busy(stage, name)]
    return busy if len(busy) >= 2 else None


async def _look_at_its_disk(stage: Stage) -> None:
    """What the dead node left, against what the requester was told."""
    left = await history.from_disk(stage.config)
    verdict = judge(stage.board.notes, left)
    kept = verdict.receipts - len(verdict.lost)
    mark = Mark.CONFIRMED if verdict.is_good else Mark.STUCK
    proofs = sum(len(job.accepted) for job in left.jobs.values())
    stage.tell(mark, f"on its disk: {kept} of {verdict.receipts} receipts, {proofs} accepted proofs")


def _has_arrived(stage: Stage, waiting: dict[str, int]) -> bool:
    seen = stage.board.history
    return len(seen.epochs) > 1 and all(seen.marks.get(session, 0) >= last for session, last in waiting.items())


def _tell_resent(stage: Stage) -> None:
    """What the new owner took first of every session begins where the old one's mark was."""
    seen = stage.board.history
    for session, first in seen.resumed.items():
        name = seen.name_of(session.partition("/")[0])
        stage.tell(Mark.CONFIRMED, f"{name} sends again from its mark {first - 1} on, now at {seen.marks[session]}")
