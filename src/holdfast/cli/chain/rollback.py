"""`holdfast chain rollback`: take blocks back, on a development network, and see what that undid (CHN-003, CHN-004)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final

import msgspec
import typer

from holdfast.cli.asking import Asked, Data, Json, Place, run
from holdfast.cli.chain.look import counted
from holdfast.cli.columns import print_json
from holdfast.cli.speak import refuse
from holdfast.core import law
from holdfast.core.refusal import Refused

SETTLEMENTS: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "Charged": lambda event: f"{event['charged']} for {event['payee']} from hold {event['id']}: reserved again",
    "Refunded": lambda event: f"the refund of hold {event['id']}: reserved again",
    **dict.fromkeys(
        ("JobCancelled", "JobExpired", "JobFailed"),
        lambda event: f"the refund of job {event['id']}: done again in the open block",
    ),
    "ResultConsumed": lambda event: f"the use of result {event['task_id']}: counts again where it can be read by then",
    "ProofAccepted": lambda event: f"the result and the pay of job {event['task_id']}: done again in the open block",
}
"""What moves money in a block, and what became of it."""
TRANSACTIONS: Final = frozenset(kind.__name__ for kind in law.TRANSACTIONS)
"""What comes into another block by itself (CHN-004)."""


class Undone(msgspec.Struct):
    """What a rollback did."""

    event: int
    from_height: int
    to_height: int
    blocks: list[dict[str, Any]]
    """Topmost first, each with its transactions."""
    money: list[str]
    waiting: int
    """Transactions in the open block now."""


def rollback(
    height: Annotated[
        int | None, typer.Argument(metavar="HEIGHT", min=0, help="The block that becomes the head again.")
    ] = None,
    blocks: Annotated[int | None, typer.Option(min=1, help="Instead: take so many of the newest back.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Take back all blocks above a height. Only development networks allow it, and never below what is final.

    Jobs, leases and evidence stay; the transactions of the blocks wait in the open block and come into the next one in
    their old order. Charges and refunds of the blocks are taken back.
    """
    if (height is None) == (blocks is None):
        refuse(Refused("CHN-003", "say a height, or --blocks", "holdfast chain list shows them", "InvalidParams"))
    place = Place(data)
    top = run(place, lambda node: node.call("chain.head"))["block"]["height"]
    to = max(0, top - (blocks or 0)) if height is None else height
    if not yes and to < top and not _confirmed(f"Take back {counted(top - to, 'block')}, {to + 1} to {top}?"):
        refuse(Refused("CHN-003", "nothing was taken back", "say --yes to do it without a question"))
    done = run(place, lambda node: _roll_back(node, to))
    print_json(done) if as_json else _print(done)


def _confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        return False
    return typer.confirm(question)


async def _roll_back(node: Asked, height: int) -> Undone:
    below = await node.call("chain.show", height=height) if height else None
    done = await node.call("chain.rollBack", height=height)
    # What was sealed meanwhile is gone, too: the events say what was undone, not what we saw before.
    first = below["block"]["last_event"] + 1 if below else 1
    events = await _until_reincluded(node, first, done["event"])
    if not events:
        return Undone(done["event"], height, height, [], [], done["transactions"])
    earlier = [event for event in events if event["number"] < done["event"]]
    gone = [event["event"] for event in events[len(earlier) :] if event["event"].get("hash")]
    blocks = _blocks(gone[::-1], earlier, first)[::-1]
    top = gone[0]["height"]
    return Undone(done["event"], top, height, blocks, list(_money(earlier, height + 1)), events[-1]["event"]["count"])


async def _until_reincluded(node: Asked, first: int, done: int) -> list[dict[str, Any]]:
    """All events from the first one of the lowest block to the end of the rollback; none where there was none."""
    assert node.local is not None
    seen = []
    async for event in node.local.follow(first - 1):
        seen.append(event)
        if event["number"] == done and event["type"] != "BlockUndone":
            return []
        if event["number"] > done and event["type"] == "Reincluded":
            break
    return seen


def _blocks(gone: list[dict[str, Any]], events: list[dict[str, Any]], first: int) -> list[dict[str, Any]]:
    """The blocks that were undone, lowest first, each with its transactions: it begins where the one below ends."""
    sealed = {event["event"]["hash"]: event["number"] for event in events if event["type"] == "BlockSealed"}
    blocks = []
    for block in gone:
        last = sealed[block["hash"]] - 1
        transactions = [
            {"event": event["number"], "type": event["type"], "id": _subject(event["event"])}
            for event in events
            if first <= event["number"] <= last and event["type"] in TRANSACTIONS
        ]
        blocks.append({"height": block["height"], "hash": block["hash"], "transactions": transactions})
        first = last + 1
    return blocks


def _subject(event: dict[str, Any]) -> str:
    return str(event.get("task_id") or event["id"])


def _money(events: list[dict[str, Any]], open_height: int) -> Iterator[str]:
    """What the blocks had settled when they were taken back; what an earlier rollback took back is not told twice."""
    settled: dict[str, tuple[int, dict[str, Any]]] = {}
    for each in events:
        kind, event = each["type"], each["event"]
        if kind in SETTLEMENTS:
            settled[_subject(event)] = open_height, each
        elif kind == "BlockSealed":
            open_height = event["height"] + 1
        elif kind == "BlockUndone":
            settled = {id_: found for id_, found in settled.items() if _stays(*found, event["height"])}
            open_height = event["height"]
    for _, each in settled.values():
        yield SETTLEMENTS[each["type"]](each["event"])


def _stays(height: int, settlement: dict[str, Any], undone: int) -> bool:
    return height != undone or settlement["type"] in TRANSACTIONS


def _print(done: Undone) -> None:
    if not done.blocks:
        print(f"nothing to take back: block {done.to_height} is the head")
        return
    for block in done.blocks:
        print(f"undone  block {block['height']}, {block['hash']}")
        for each in block["transactions"]:
            print(f"          back in the open block: {each['type']} {each['id']} (event {each['event']})")
    for line in done.money:
        print(f"money   taken back: {line}")
    print(f"head    {done.to_height}; in the open block: {counted(done.waiting, 'transaction')}")
