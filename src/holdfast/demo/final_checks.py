"""The last act: read everything again from the store and compare it with the requester's receipts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.client import AsyncClient, NodeRefused
from holdfast.client.node_socket import NodeSocket
from holdfast.config import Config
from holdfast.core.base.errors import Corrupt
from holdfast.demo import event_history
from holdfast.demo.event_history import EventHistory, JobTrace
from holdfast.demo.jobs import COUNT
from holdfast.demo.processes import DemoFailed, DemoProcesses
from holdfast.demo.receipt_check import check_receipts
from holdfast.demo.run import DemoRun
from holdfast.demo.screen import pages
from holdfast.demo.screen.board import Board, Check, StateGlyph

if TYPE_CHECKING:
    from holdfast.core.state import State

PAGE: Final = 1_000
READING_SHARE: Final = 0.08
"""How long a page is shown, as a share of the run's length."""


async def all_jobs_ended(demo: DemoRun) -> None:
    board = demo.board
    await demo.wait_for(lambda: board.history.finished + len(_failed(board)) >= COUNT, "every job ends")
    demo.report(StateGlyph.CONFIRMED, f"{board.finished} jobs have ended with a result in a sealed block")


async def run_final_checks(demo: DemoRun) -> None:
    board = demo.board
    if not demo.outputs:
        await all_jobs_ended(demo)
    await demo.stop_agents()
    demo.report(StateGlyph.RELEASED, "the agents have delivered everything and ended")
    await demo.stop_following(
        await demo.complete_within(event_history.read_from_node(demo.data), "the node returns its events")
    )
    outputs = demo.outputs or await demo.complete_within(
        fetch_outputs(demo.data, board), "the node returns the results"
    )
    board.page = pages.results_page(board, outputs)
    await demo.pause(READING_SHARE)
    job = _most_eventful(board.history)
    board.page = pages.custody_page(board, job)
    output = next(outputs.get(each.number, b"") for each in board.records if each.task_id == job.id)
    proof_check = asyncio.create_task(check_offline_proof(demo, job.id, output))
    await demo.pause(READING_SHARE)
    proof_checks = await demo.complete_within(proof_check, "holdfast verify ends")
    board.page = None
    await _run_checks(demo, outputs, proof_checks)


def _failed(board: Board) -> list[JobTrace]:
    return [job for job in board.history.jobs.values() if job.ended]


def _most_eventful(seen: EventHistory) -> JobTrace:
    """The job with the most leases."""
    return max(seen.jobs.values(), key=lambda job: len(job.leases))


async def _run_checks(demo: DemoRun, outputs: Mapping[int, bytes], proof_checks: list[Check]) -> None:
    board, seen = demo.board, demo.board.history
    verdict = check_receipts(board.records, seen, is_over=True)
    board.lost, board.duplicated = len(verdict.lost), len(verdict.duplicated)
    kept = verdict.receipts - len(verdict.lost)
    proofs = sum(len(job.accepted) for job in seen.jobs.values())
    checks = [
        Check("receipts honoured with one result each", f"{kept} of {COUNT}", kept == COUNT == verdict.receipts),
        Check(
            "jobs done twice",
            f"{board.duplicated}, {proofs} proofs accepted",
            not verdict.duplicated and proofs == COUNT,
        ),
        _check_outputs(board, outputs),
        *_archive_checks(demo),
        await _check_evidence(demo),
        *await demo.complete_within(check_money(demo.data, seen), "the node returns its accounts"),
    ]
    for check in (*checks, *proof_checks):
        await _add_check(demo, check)
    live = await demo.complete_within(read_live_digest(demo.data), "the node returns its digest")
    await asyncio.to_thread(demo.processes.stop, "node")
    board.node = (StateGlyph.RELEASED, "stopped")
    await _add_check(demo, await check_journal_fold(demo.config, live))
    times = ", ".join(f"{took_s:.1f} s" for took_s in demo.recovered_s)
    detail = f"{board.faults_survived} of {board.faults_planned}{f', node back in {times}' if times else ''}"
    await _add_check(demo, Check("faults survived", detail, board.faults_survived == board.faults_planned))


async def _add_check(demo: DemoRun, check: Check) -> None:
    demo.board.checks.append(check)
    await demo.pause(0.01)


# ------------------------------------------------------------------------------------------------ results and evidence


async def fetch_outputs(data: Path, board: Board) -> dict[int, bytes]:
    """The output of every job by its number, checked against the digest in the chain (RES-004)."""
    outputs = {}
    async with AsyncClient(data) as node:
        for record in board.records:
            if record.task_id:
                try:
                    outputs[record.number] = await node.result(record.task_id)
                except (NodeRefused, Corrupt) as error:
                    board.closing_lines.append(f"{board.job_name(record.task_id)}: {error}")
    return outputs


def _check_outputs(board: Board, outputs: Mapping[int, bytes]) -> Check:
    """The outputs are what an honest provider returns."""
    good = sum(outputs.get(job.number) == job.output for job in board.jobs)
    return Check("results with the right bytes", f"{good} of {COUNT}", good == COUNT)


def _archive_checks(demo: DemoRun) -> list[Check]:
    """ARC-004, PRU-001: by the events, no blob was deleted here before the archive's copy had been read back."""
    if demo.fetch_check is None or demo.board.bytes_here is None:
        return []
    blobs = demo.board.history.blobs.values()
    deleted = sum(blob.is_verified and 0 < blob.archived < blob.pruned for blob in blobs)
    left = sum(demo.board.bytes_here)
    detail = f"{deleted} of {len(blobs)}, {left:,} bytes of outputs left"
    is_good = bool(blobs) and deleted == len(blobs) and not left
    return [Check("blobs archived, read back, then deleted here", detail, is_good), demo.fetch_check]


async def _check_evidence(demo: DemoRun) -> Check:
    """EVD-002: the node has what is in the agents' spools, without gaps."""
    await demo.refresh_spools()
    board, seen = demo.board, demo.board.history
    missing, stored = sum(board.unacked(name) for name in board.agents), sum(seen.watermarks.values())
    detail = f"{stored}, {missing} missing, {seen.gaps} gaps"
    return Check("evidence records with the node", detail, bool(stored) and not missing and not seen.gaps)


# ------------------------------------------------------------------------------------------------ offline


async def check_offline_proof(demo: DemoRun, task_id: str, output: bytes) -> list[Check]:
    """RES-008, with the product's own commands: a proof is checked without a node, and forged bytes are refused."""
    words = ("result", "prove", task_id, "--data", str(demo.data))
    proved = await asyncio.to_thread(demo.processes.run, *words)
    if proved.returncode:
        raise DemoFailed(proved.stderr.decode("utf-8", "replace"))
    for name, raw in {"proof.json": proved.stdout, "output": output, "forged": output + b"!"}.items():
        (demo.folder / name).write_bytes(raw)
    checked, forged = await asyncio.gather(*(_exit_code(demo.processes, name) for name in ("output", "forged")))
    return [
        Check("holdfast verify proof.json --output output", f"exit code {checked}", checked == 0),
        Check("holdfast verify proof.json --output forged", f"exit code {forged}", forged == 1),
    ]


async def _exit_code(children: DemoProcesses, output: str) -> int:
    return (await asyncio.to_thread(children.run, "verify", "proof.json", "--output", output)).returncode


# ------------------------------------------------------------------------------------------------ money and state


async def check_money(data: Path, seen: EventHistory) -> list[Check]:
    """ESC-001: compare what was reserved by the events with what was settled and what the accounts still hold."""
    accounts = [account async for account in _accounts(data, seen.last)]
    held = sum(account["held"] for account in accounts)
    total = sum(account["available"] + account["held"] + account["pending"] for account in accounts)
    reserved, charged, refunded = (seen.totals[name] for name in ("reserved", "charged", "refunded"))
    return [
        Check(
            "reserved = charged + refunded + held",
            f"{reserved:,} = {charged:,} + {refunded:,} + {held:,}",
            reserved == charged + refunded + held,
        ),
        Check(f"all {len(accounts)} accounts together", f"{total:,}", total == 0),
    ]


async def _accounts(data: Path, as_of: int) -> AsyncIterator[dict[str, Any]]:
    """All accounts, once the tables have reached this event: they are a moment behind the journal."""
    after: str | None = ""
    async with NodeSocket(data) as node:
        while after is not None:
            page = await node.call("account.listAccounts", after=after, limit=PAGE)
            if page["as_of"] < as_of:
                await asyncio.sleep(0.05)
                continue
            for account in page["rows"]:
                yield account
            after = page["next_after"]


async def read_live_digest(data: Path) -> tuple[int, str]:
    async with NodeSocket(data) as node:
        answer = await node.call("node.getStateDigest")
        return answer["event"], answer["digest"]


async def check_journal_fold(config: Config, live: tuple[int, str]) -> Check:
    """ENG-003: the state folded from the journal alone has the digest that the running node had."""
    from holdfast.core import state_machine  # noqa: PLC0415 - heavy: only this function needs it
    from holdfast.core.state import State  # noqa: PLC0415
    from holdfast.core.state_digest import digest  # noqa: PLC0415

    live_event, live_digest = live
    state, folded = State(config.policy), ""
    async for _, events in event_history.journal_batches(config):
        for event in events:
            state_machine.apply(state, event)
            if state.last_event == live_event:  # the node may have sealed a block since
                folded = digest(state).hex()
    label = f"{state.last_event:,} events folded from nothing"
    if broken := _broken_invariants(state):
        return Check(label, f"broken: {', '.join(broken)}", is_good=False)
    sign = "=" if folded == live_digest else "is not"
    return Check(label, f"{folded[:8] or 'nothing'} {sign} live {live_digest[:8]}", folded == live_digest)


def _broken_invariants(state: State) -> list[str]:
    from holdfast.core.escrow import invariants as escrow_invariants  # noqa: PLC0415
    from holdfast.core.queue import invariants as queue_invariants  # noqa: PLC0415

    leases = ["no lease is active"] if state.leases.by_id else []
    escrow = escrow_invariants.broken_invariants(state.ledger)
    return [*leases, *escrow, *queue_invariants.broken_invariants(state.queue, state.ledger)]
