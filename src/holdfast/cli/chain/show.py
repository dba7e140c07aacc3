"""`holdfast chain head | show | list | prove | prove-consistency`: the blocks of a running node, and proofs of them."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import typer

from holdfast.cli.terminal.abbreviations import find_height
from holdfast.cli.terminal.clock import now_ms
from holdfast.cli.terminal.node_client import NodeSession, call_node, run_on_node
from holdfast.cli.terminal.options import AfterEvent, Json, JsonAlways, Limit, NodeAddress, OldestFirst, Wide, on_node
from holdfast.cli.terminal.tables import format_time, pluralize, print_json, print_more, print_record, print_table
from holdfast.client import NodeRefused

POLL_S: Final = 0.1
BlockArgument = Annotated[
    str, typer.Argument(metavar="BLOCK", help="The block's height, or the beginning of its hash.")
]


@on_node
def head(address: NodeAddress, as_json: Json = False) -> None:
    """Show the newest block, the newest final height, and the open block."""
    head = call_node(address, "chain.getHead")
    if as_json:
        print_json(head)
        return
    block = head["block"]
    age_s = max(0, now_ms() - block["time_ms"]) // 1000
    print_record(
        block_record(block)
        | {
            "time": f"{format_time(block['time_ms'])}, {age_s} s ago" if block["height"] else None,
            "final": f"up to block {head['finalized']}",
            "open": f"block {head['open_height']}, {pluralize(head['open_transactions'], 'transaction')} so far",
        }
        | _rollback_record(head["rollback"])
    )


def _rollback_record(rollback: dict[str, Any] | None) -> dict[str, str]:
    if rollback is None:
        return {}
    waiting = pluralize(rollback["transactions"], "transaction")
    return {"rolling back": f"{pluralize(rollback['blocks'], 'block')} left, {waiting} not in the open block yet"}


@on_node
def show(
    address: NodeAddress,
    block: BlockArgument,
    as_json: Json = False,
) -> None:
    """Show a block of the active chain, with the numbers of the events that are its transactions."""

    async def read(node: NodeSession) -> Any:
        return await node.call("chain.getBlock", height=await find_height(node, block))

    answer = run_on_node(address, read)
    if as_json:
        print_json(answer)
        return
    header = answer["block"]
    more = {
        "parent": header["parent"],
        "beacon": header["beacon"],
        "tx_root": header["tx_root"],
        "log_root": header["log_root"],
        "signature": header["signature"],
        "final": "yes" if answer["is_final"] else "not yet: it can still be rolled back",
        "transactions": [f"event {number}" for number in answer["transactions"]],
    }
    print_record(block_record(header) | more)


@on_node
def list_(
    address: NodeAddress,
    after: AfterEvent = 0,
    height: Annotated[
        int | None, typer.Option(min=0, help="Only blocks of this height, orphaned ones included.")
    ] = None,
    limit: Limit = 100,
    oldest_first: OldestFirst = False,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """List sealed blocks, newest first; those that were rolled back are ORPHANED."""
    params = {"after": after, "height": height, "limit": limit, "newest_first": not oldest_first}
    page = call_node(address, "chain.listBlocks", **params)
    if as_json:
        print_json(page)
        return
    heads = ("HEIGHT", "STATUS", "TIME", "EVENTS", "TXS", "HASH")
    rows = [
        (row["height"], row["status"], format_time(row["time_ms"]), _event_range(row), row["tx_count"], row["hash"])
        for row in page["rows"]
    ]
    print_table(heads, rows, wide=wide)
    print_more(page["next_after"])


@on_node
def prove(
    address: NodeAddress,
    task_id: Annotated[
        str, typer.Argument(metavar="TASK_ID", help="The job whose admission to prove, or the beginning of its id.")
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until its block is sealed.")] = False,
    as_json: JsonAlways = True,
) -> None:
    """Print a proof, as JSON, that a job is in a block. `holdfast chain verify FILE` checks it offline."""

    async def prove_admission(node: NodeSession) -> Any:
        while True:
            try:
                return await node.call("chain.proveAdmission", task_id=task_id)
            except NodeRefused as refusal:
                if not wait or refusal.name != "NoResultYet":
                    raise
            await asyncio.sleep(POLL_S)

    print_json(run_on_node(address, prove_admission))


@on_node
def prove_consistency(
    address: NodeAddress,
    first: Annotated[str, typer.Argument(metavar="FIRST", help="The block you trust: its height or hash.")],
    second: Annotated[str, typer.Argument(metavar="SECOND", help="A later block: its height or hash.")],
    as_json: JsonAlways = True,
) -> None:
    """Print a proof, as JSON, that results were only appended between two blocks, for `holdfast chain verify FILE`."""

    async def prove_growth(node: NodeSession) -> Any:
        heights = {"first": await find_height(node, first), "second": await find_height(node, second)}
        return await node.call("chain.proveConsistency", **heights)

    print_json(run_on_node(address, prove_growth))


def block_record(block: dict[str, Any]) -> dict[str, object]:
    return {
        "height": block["height"],
        "hash": block["hash"],
        "time": format_time(block["time_ms"]),
        "proposer": block["proposer"],
        "events": _event_range(block),
        "transactions": block["tx_count"],
        "results": f"{block['result_count']}, {block['log_size']} on the chain so far",
    }


def _event_range(block: dict[str, Any]) -> str:
    first, last = block["first_event"], block["last_event"]
    return f"{first} to {last}" if last >= first else "none"
