"""`holdfast chain rollback`: roll back blocks on a development network, and report the effects (CHN-003, CHN-004)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from holdfast.cli.terminal.node_client import async_client, call_node
from holdfast.cli.terminal.options import Json, NodeAddress, Yes, on_node
from holdfast.cli.terminal.progress import ProgressLine
from holdfast.cli.terminal.reporting import confirm, refuse, report_errors
from holdfast.cli.terminal.tables import pluralize, print_json
from holdfast.core.base.errors import Refused
from holdfast.core.chain.messages import (
    BlockRolledBack,
    BlockSealed,
    RollbackFinished,
    RollbackStarted,
    TransactionsReincluded,
)

if TYPE_CHECKING:
    from holdfast.client import AsyncClient, NodeEvent

SETTLEMENTS: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "charged": lambda event: f"{event['charged']} for {event['payee']} from reservation {event['id']}: reserved again",
    "refunded": lambda event: f"the refund of reservation {event['id']}: reserved again",
    **dict.fromkeys(
        ("jobCancelled", "jobExpired", "jobFailed"),
        lambda event: f"the refund of job {event['jobId']}: applied again in the open block",
    ),
    "cap.resultConsumed": lambda event: (
        f"the use of result {event['task_id']}: applied again if it is readable by then"
    ),
    "jobCompleted": lambda event: (
        f"the result and the payment of job {event['jobId']}: applied again in the open block"
    ),
}
"""Events that settle something in a block, each with what a rollback does to it."""
LAST_EVENT: Final = {
    BlockRolledBack.public_name: TransactionsReincluded.public_name,
    RollbackStarted.public_name: RollbackFinished.public_name,
}
"""The first event of a rollback to its last one: a small rollback is one decision, a large one goes in steps."""


class RollbackReport(msgspec.Struct, kw_only=True):
    """What a rollback did."""

    event: int
    from_height: int
    to_height: int
    blocks: list[dict[str, Any]]
    """Topmost first, each with its transactions."""
    money: list[str]
    waiting: int
    """Transactions in the open block now."""


@on_node
def rollback(
    address: NodeAddress,
    height: Annotated[
        int | None, typer.Argument(metavar="HEIGHT", min=0, help="Height of the block that becomes the head again.")
    ] = None,
    blocks: Annotated[
        int | None, typer.Option(min=1, help="Instead: roll back this many of the newest blocks.")
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Roll back all blocks above a height. Only development networks allow it, and never final blocks.

    Jobs, leases and evidence stay. The transactions of the blocks go into the open block in their old order. Charges
    and refunds of the blocks are rolled back. Over --url it needs an operator's key.
    """
    if (height is None) == (blocks is None):
        refuse(Refused("CHN-003", "pass HEIGHT or --blocks", "holdfast chain list shows the blocks", "InvalidParams"))
    top = call_node(address, "chain.getHead")["block"]["height"]
    to = max(0, top - (blocks or 0)) if height is None else height
    if to < top:
        confirm(f"Roll back {pluralize(top - to, 'block')}, {to + 1} to {top}?", "CHN-003", yes=yes)
    with report_errors():
        report = asyncio.run(_roll_back(address, to))
    print_json(report) if as_json else _print(report)


@cache
def _transaction_names() -> frozenset[str]:
    """Events that are included again in a later block (CHN-004)."""
    from holdfast.core.workflows.include import TRANSACTIONS  # noqa: PLC0415 - the other verbs of the chain need no rules

    return frozenset(kind.public_name for kind in TRANSACTIONS)


async def _roll_back(address: NodeAddress, height: int) -> RollbackReport:
    async with async_client(address) as node:
        return await _roll_back_on(node, height)


async def _roll_back_on(node: AsyncClient, height: int) -> RollbackReport:
    below = await node.call("chain.getBlock", height=height) if height else None
    answer = await node.call("chain.rollBack", height=height)
    # Blocks sealed since the question are rolled back, too: the events say which ones.
    first = below["block"]["last_event"] + 1 if below else 1
    events = await _until_the_end(node, first, answer)
    if not events:
        return RollbackReport(
            event=answer["event"],
            from_height=height,
            to_height=height,
            blocks=[],
            money=[],
            waiting=answer["transactions"],
        )
    earlier = [event for event in events if event.number < answer["event"]]
    later = [(event.type, event.event) for event in events[len(earlier) :]]
    rolled_back = [event for kind, event in later if kind == BlockRolledBack.public_name and event["hash"]]
    return RollbackReport(
        event=answer["event"],
        from_height=rolled_back[0]["height"],
        to_height=height,
        blocks=_blocks(rolled_back[::-1], earlier, first)[::-1],
        money=list(_money(earlier, height + 1)),
        waiting=sum(event["count"] for kind, event in later if kind == TransactionsReincluded.public_name),
    )


async def _until_the_end(node: AsyncClient, first: int, answer: dict[str, Any]) -> list[NodeEvent]:
    """All events from the first one of the lowest block to the end of the rollback; empty if it changed nothing."""
    events: list[NodeEvent] = []
    last, included = "", 0
    progress = ProgressLine("rolling back")
    async with aclosing(node.events(first - 1)) as followed:
        async for event in followed:
            if event.index:  # what the rollback means for results
                continue
            events.append(event)
            if event.number == answer["event"] and not (last := LAST_EVENT.get(event.type, "")):
                break
            if last and event.type == TransactionsReincluded.public_name:
                included += event.event["count"]
                progress.show_count(included, answer["transactions"], "transactions")
            elif last and event.type == BlockRolledBack.public_name:
                progress.show_height(event.event["height"])
            if event.type == last:
                break
    progress.end()
    return events if last else []


def _blocks(rolled_back: list[dict[str, Any]], events: list[NodeEvent], first: int) -> list[dict[str, Any]]:
    """The blocks that were rolled back, lowest first, with their transactions. A block begins where its parent ends."""
    sealed = {event.event["hash"]: event.number for event in events if event.type == BlockSealed.public_name}
    blocks = []
    for block in rolled_back:
        last = sealed[block["hash"]] - 1
        transactions = [
            {"event": event.number, "type": event.type, "id": _subject(event.event)}
            for event in events
            if first <= event.number <= last and event.type in _transaction_names()
        ]
        blocks.append({"height": block["height"], "hash": block["hash"], "transactions": transactions})
        first = last + 1
    return blocks


def _subject(event: dict[str, Any]) -> str:
    return str(event.get("jobId") or event.get("task_id") or event["id"])


def _money(events: list[NodeEvent], open_height: int) -> Iterator[str]:
    """What the blocks had settled when they were rolled back; what an earlier rollback undid is not listed again."""
    settled: dict[str, tuple[int, NodeEvent]] = {}
    for each in events:
        kind, event = each.type, each.event
        if kind in SETTLEMENTS:
            settled[_subject(event)] = open_height, each
        elif kind == BlockSealed.public_name:
            open_height = event["height"] + 1
        elif kind in LAST_EVENT:  # where it goes in steps, its first event undoes the open block
            height = event["height"] if kind == BlockRolledBack.public_name else open_height
            settled = {id_: entry for id_, entry in settled.items() if _is_still_settled(*entry, rolled_back=height)}
            open_height = height
    for _, settlement in settled.values():
        yield SETTLEMENTS[settlement.type](settlement.event)


def _is_still_settled(height: int, settlement: NodeEvent, *, rolled_back: int) -> bool:
    return height != rolled_back or settlement.type in _transaction_names()


def _print(report: RollbackReport) -> None:
    if not report.blocks:
        print(f"nothing to roll back: block {report.to_height} is the head")
        return
    for block in report.blocks:
        print(f"rolled back  block {block['height']}, {block['hash']}")
        for each in block["transactions"]:
            print(f"             in the open block again: {each['type']} {each['id']} (event {each['event']})")
    for line in report.money:
        print(f"money        rolled back: {line}")
    print(f"head         {report.to_height}; in the open block: {pluralize(report.waiting, 'transaction')}")
