"""`holdfast chain head | show | list | prove`: what a running node says of its blocks."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, Final

import typer

from holdfast.cli.asking import Asked, Ca, Data, Json, Place, TokenFile, Url, ask, run
from holdfast.cli.columns import print_json, print_record, print_table, when
from holdfast.client import NodeRefused

LOOK_AGAIN_S: Final = 0.1
Height = Annotated[int, typer.Argument(metavar="HEIGHT", min=0, help="The block's height.")]


def head(
    data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None, as_json: Json = False
) -> None:
    """The newest block, what is final, and what is open above it."""
    found = ask(Place(data, url, token_file, ca), "chain.head")
    if as_json:
        print_json(found)
        return
    block = found["block"]
    age_s = max(0, time.time_ns() // 1_000_000 - block["time_ms"]) // 1000
    print_record(
        record_of(block)
        | {
            "time": f"{when(block['time_ms'])}, {age_s} s ago" if block["height"] else None,
            "final": f"up to block {found['finalized']}",
            "open": f"block {found['open_height']}, {counted(found['open_transactions'], 'transaction')} so far",
        }
    )


def show(
    height: Height,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """One block of the active chain, with the numbers of the events that are its transactions."""
    found = ask(Place(data, url, token_file, ca), "chain.show", height=height)
    if as_json:
        print_json(found)
        return
    block = found["block"]
    more = {
        "parent": block["parent"],
        "beacon": block["beacon"],
        "tx_root": block["tx_root"],
        "log_root": block["log_root"],
        "signature": block["signature"],
        "final": "yes" if found["is_final"] else "not yet: a rollback can take it back",
        "transactions": [f"event {number}" for number in found["transactions"]],
    }
    print_record(record_of(block) | more)


def list_(
    after: Annotated[int, typer.Option(min=0, help="Go on after the block that this event sealed.")] = 0,
    height: Annotated[int | None, typer.Option(min=0, help="Only blocks of this height, orphaned ones, too.")] = None,
    limit: Annotated[int, typer.Option(help="How many.")] = 100,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Sealed blocks in the order of their sealing; those that were taken back are ORPHANED."""
    found = ask(Place(data, url, token_file, ca), "chain.list", after=after, height=height, limit=limit)
    if as_json:
        print_json(found)
        return
    heads = ("HEIGHT", "STATUS", "TIME", "EVENTS", "TXS", "HASH")
    rows = [
        (row["height"], row["status"], when(row["time_ms"]), _events(row), row["tx_count"], row["hash"])
        for row in found["rows"]
    ]
    print_table(heads, rows)
    if found["next_after"] is not None:
        print(f"more: --after {found['next_after']}")


def prove(
    task_id: Annotated[str, typer.Argument(metavar="TASK_ID", help="The job whose admission is to be proved.")],
    wait: Annotated[bool, typer.Option("--wait", help="Until the block that it is in is sealed.")] = False,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """A proof, as JSON, that a job is in a block: anybody checks it with `holdfast chain verify FILE`, offline."""

    async def proved(node: Asked) -> Any:
        while True:
            try:
                return await node.call("chain.proveAdmission", task_id=task_id)
            except NodeRefused as no:
                if not wait or no.name != "NoResultYet":
                    raise
            await asyncio.sleep(LOOK_AGAIN_S)

    print_json(run(Place(data, url, token_file, ca), proved))


def prove_growth(
    first: Annotated[int, typer.Argument(metavar="FIRST", min=1, help="Height of the block you know.")],
    second: Annotated[int, typer.Argument(metavar="SECOND", min=1, help="Height of a later one.")],
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """A proof, as JSON, that between two blocks results were only added: checked by `holdfast chain verify FILE`."""
    print_json(ask(Place(data, url, token_file, ca), "chain.proveGrowth", first=first, second=second))


def record_of(block: dict[str, Any]) -> dict[str, object]:
    return {
        "height": block["height"],
        "hash": block["hash"],
        "time": when(block["time_ms"]),
        "proposer": block["proposer"],
        "events": _events(block),
        "transactions": block["tx_count"],
        "results": f"{block['result_count']}, {block['log_size']} on the chain so far",
    }


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _events(block: dict[str, Any]) -> str:
    first, last = block["first_event"], block["last_event"]
    return f"{first} to {last}" if last >= first else "none"
