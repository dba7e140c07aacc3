"""The last act: everything is read again from the store and compared with what the requester was told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.demonstration import history, pages
from holdfast.cli.demonstration.board import FAULTS, Board, Check, Mark
from holdfast.cli.demonstration.children import Children, Trouble
from holdfast.cli.demonstration.history import History, Life
from holdfast.cli.demonstration.jobs import COUNT
from holdfast.cli.demonstration.stage import Stage
from holdfast.cli.demonstration.verdict import judge
from holdfast.client import Client, NodeRefused
from holdfast.config import Config
from holdfast.core.refusal import Corrupt

if TYPE_CHECKING:
    from holdfast.core.state import State

PAGE: Final = 1_000
READING: Final = 0.08
"""How long a page stands, as a share of the whole."""


async def prove_it(stage: Stage) -> None:
    board = stage.board
    await stage.until(lambda: board.history.finished + len(_failed(board)) >= COUNT, "every job ends")
    stage.tell(Mark.CONFIRMED, f"{board.finished} jobs have ended with a result in a sealed block")
    await stage.stop_agents()
    stage.tell(Mark.LET_GO, "the agents have delivered everything and ended")
    await stage.stop_watching(await stage.within(history.from_node(stage.data), "the node tells its events"))
    outputs = await stage.within(fetch(stage.data, board), "the node hands out results")
    board.page = pages.results(board, outputs)
    await stage.pause(READING)
    shown = _most_eventful(board.history)
    board.page = pages.custody(board, shown)
    proving = asyncio.create_task(verify(stage.children, stage.folder, stage.data, shown.id))
    await stage.pause(READING)
    proven = await stage.within(proving, "holdfast verify ends")
    board.page = None
    await _judge(stage, outputs, proven)


def _failed(board: Board) -> list[Life]:
    return [job for job in board.history.jobs.values() if job.ended]


def _most_eventful(seen: History) -> Life:
    """The job that went through most hands."""
    return max(seen.jobs.values(), key=lambda job: len(job.leases))


async def _judge(stage: Stage, outputs: Mapping[int, bytes], proven: list[Check]) -> None:
    board, seen = stage.board, stage.board.history
    verdict = judge(board.notes, seen, is_over=True)
    board.lost, board.twice = len(verdict.lost), len(verdict.twice)
    kept = verdict.receipts - len(verdict.lost)
    proofs = sum(len(job.accepted) for job in seen.jobs.values())
    checks = [
        Check("receipts honoured with one result each", f"{kept} of {COUNT}", kept == COUNT == verdict.receipts),
        Check("jobs done twice", f"{board.twice}, {proofs} proofs accepted", not verdict.twice and proofs == COUNT),
        _outputs(board, outputs),
        await _evidence(stage),
        *await stage.within(add_up_money(stage.data, seen), "the node tells its accounts"),
    ]
    for check in (*checks, *proven):
        await _show(stage, check)
    live = await stage.within(live_digest(stage.data), "the node tells its digest")
    await asyncio.to_thread(stage.children.stop, "node")
    board.node = (Mark.LET_GO, "stopped")
    await _show(stage, await fold_journal(stage.config, live))
    times = ", ".join(f"{took_s:.1f} s" for took_s in stage.recovered_s)
    found = f"{board.faults} of {FAULTS}, node back in {times}"
    await _show(stage, Check("faults survived", found, board.faults == FAULTS))


async def _show(stage: Stage, check: Check) -> None:
    stage.board.checks.append(check)
    await stage.pause(0.01)


# ------------------------------------------------------------------------------------------------ results and evidence


async def fetch(data: Path, board: Board) -> dict[int, bytes]:
    """The output of every job by its number, checked against the digest that the chain holds (RES-004)."""
    found = {}
    async with Client(data) as node:
        for note in board.notes:
            if note.task_id:
                try:
                    found[note.number] = await node.result(note.task_id)
                except (NodeRefused, Corrupt) as no:
                    board.closing.append(f"{board.job_name(note.task_id)}: {no}")
    return found


def _outputs(board: Board, outputs: Mapping[int, bytes]) -> Check:
    """What came out is what an honest provider delivers."""
    good = sum(outputs.get(job.number) == job.output for job in board.jobs)
    return Check("results with the right bytes", f"{good} of {COUNT}", good == COUNT)


async def _evidence(stage: Stage) -> Check:
    """EVD-002: what lies in the agents' spools is with the node, and nothing was left out on the way."""
    await stage.look_at_spools()
    board, seen = stage.board, stage.board.history
    missing, taken = sum(board.behind(name) for name in board.seats), sum(seen.marks.values())
    found = f"{taken}, {missing} missing, {seen.gaps} gaps"
    return Check("evidence records with the node", found, bool(taken) and not missing and not seen.gaps)


# ------------------------------------------------------------------------------------------------ offline


async def verify(children: Children, folder: Path, data: Path, task_id: str) -> list[Check]:
    """RES-008, by the product's own commands: a proof that needs no node; and that forged bytes are refused."""
    made, read = await asyncio.gather(
        asyncio.to_thread(children.run, "result", "prove", task_id, "--data", str(data)),
        asyncio.to_thread(children.run, "result", "read", task_id, "--data", str(data)),
    )
    if made.returncode or read.returncode:
        raise Trouble((made.stderr + read.stderr).decode("utf-8", "replace"))
    for name, raw in {"proof.json": made.stdout, "output": read.stdout, "forged": read.stdout + b"!"}.items():
        (folder / name).write_bytes(raw)
    checked, forged = await asyncio.gather(*(_exit_code(children, name) for name in ("output", "forged")))
    return [
        Check("holdfast verify proof.json --output output", f"exit code {checked}", checked == 0),
        Check("holdfast verify proof.json --output forged", f"exit code {forged}", forged == 1),
    ]


async def _exit_code(children: Children, output: str) -> int:
    return (await asyncio.to_thread(children.run, "verify", "proof.json", "--output", output)).returncode


# ------------------------------------------------------------------------------------------------ money and state


async def add_up_money(data: Path, seen: History) -> list[Check]:
    """ESC-001: what events say was reserved, against what they say was settled and what the accounts say is held."""
    accounts = [account async for account in _accounts(data, seen.last)]
    held = sum(account["held"] for account in accounts)
    everything = sum(account["available"] + account["held"] + account["pending"] for account in accounts)
    reserved, charged, refunded = (seen.totals[name] for name in ("reserved", "charged", "refunded"))
    return [
        Check(
            "reserved = charged + refunded + held",
            f"{reserved:,} = {charged:,} + {refunded:,} + {held:,}",
            reserved == charged + refunded + held,
        ),
        Check(f"all {len(accounts)} accounts together", f"{everything:,}", everything == 0),
    ]


async def _accounts(data: Path, as_of: int) -> AsyncIterator[dict[str, Any]]:
    """All accounts once the tables have reached this event: lists may lag a moment behind."""
    after: str | None = ""
    async with Client(data) as node:
        while after is not None:
            page = await node.call("account.list", after=after, limit=PAGE)
            if page["as_of"] < as_of:
                await asyncio.sleep(0.05)
                continue
            for account in page["rows"]:
                yield account
            after = page["next_after"]


async def live_digest(data: Path) -> tuple[int, str]:
    async with Client(data) as node:
        answer = await node.call("node.digest")
        return answer["event"], answer["digest"]


async def fold_journal(config: Config, live: tuple[int, str]) -> Check:
    """ENG-003: the state built from nothing but the journal has the digest that the living node had."""
    from holdfast.app import stores  # noqa: PLC0415 - databases are loaded when they are needed
    from holdfast.core import law  # noqa: PLC0415
    from holdfast.core.event import Tip, check_follows, tip_of  # noqa: PLC0415
    from holdfast.core.state import State, digest  # noqa: PLC0415

    state, tip, folded = State(config.policy), Tip(), ""
    journal, tables = stores(config)
    try:
        async for batch in journal.read(tip.number):
            check_follows(tip, batch)
            for event in law.unpack(batch):
                law.apply(state, event)
                if state.last_event == live[0]:  # the node may have sealed a block since
                    folded = digest(state).hex()
            tip = tip_of(batch)
    finally:
        await journal.close()
        await tables.close()
    label = f"{tip.last:,} events folded from nothing"
    if broken := _broken_laws(state):
        return Check(label, f"broken: {', '.join(broken)}", is_good=False)
    sign = "=" if folded == live[1] else "is not"
    return Check(label, f"{folded[:8] or 'nothing'} {sign} live {live[1][:8]}", folded == live[1])


def _broken_laws(state: State) -> list[str]:
    from holdfast.core.escrow.books import broken_laws as of_money  # noqa: PLC0415
    from holdfast.core.queue.books import broken_laws as of_queue  # noqa: PLC0415

    left = ["no lease lives"] if state.leases.by_id else []
    return [*left, *of_money(state.ledger), *of_queue(state.queue, state.ledger)]
