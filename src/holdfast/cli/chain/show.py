"""`holdfast chain head | show | list | prove | prove-consistency`: the blocks of a running node, and proofs of them."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import typer

from holdfast.cli.terminal.clock import now_ms
from holdfast.cli.terminal.node_client import NodeAddress, NodeSession, call_node, run_on_node
from holdfast.cli.terminal.options import Ca, Data, Json, TokenFile, Url
from holdfast.cli.terminal.tables import format_time, pluralize, print_json, print_record, print_table
from holdfast.client import NodeRefused

POLL_S: Final = 0.1
Height = Annotated[int, typer.Argument(metavar="HEIGHT", min=0, help="The block's height.")]


def head(
    data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None, as_json: Json = False
) -> None:
    """Show the newest block, the newest final height, and the open block."""
    head = call_node(NodeAddress(data, url, token_file, ca), "chain.getHead")
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


def show(
    height: Height,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Show a block of the active chain, with the numbers of the events that are its transactions."""
    answer = call_node(NodeAddress(data, url, token_file, ca), "chain.getBlock", height=height)
    if as_json:
        print_json(answer)
        return
    block = answer["block"]
    more = {
        "parent": block["parent"],
        "beacon": block["beacon"],
        "tx_root": block["tx_root"],
        "log_root": block["log_root"],
        "signature": block["signature"],
        "final": "yes" if answer["is_final"] else "not yet: it can still be rolled back",
        "transactions": [f"event {number}" for number in answer["transactions"]],
    }
    print_record(block_record(block) | more)


def list_(
    after: Annotated[int, typer.Option(min=0, help="Continue after the block that this event sealed.")] = 0,
    height: Annotated[
        int | None, typer.Option(min=0, help="Only blocks of this height, orphaned ones included.")
    ] = None,
    limit: Annotated[int, typer.Option(help="How many.")] = 100,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """List sealed blocks in the order of their sealing; those that were rolled back are ORPHANED."""
    page = call_node(
        NodeAddress(data, url, token_file, ca), "chain.listBlocks", after=after, height=height, limit=limit
    )
    if as_json:
        print_json(page)
        return
    heads = ("HEIGHT", "STATUS", "TIME", "EVENTS", "TXS", "HASH")
    rows = [
        (row["height"], row["status"], format_time(row["time_ms"]), _event_range(row), row["tx_count"], row["hash"])
        for row in page["rows"]
    ]
    print_table(heads, rows)
    if page["next_after"] is not None:
        print(f"more: --after {page['next_after']}")


def prove(
    task_id: Annotated[str, typer.Argument(metavar="TASK_ID", help="The job whose admission to prove.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until its block is sealed.")] = False,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
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

    print_json(run_on_node(NodeAddress(data, url, token_file, ca), prove_admission))


def prove_consistency(
    first: Annotated[int, typer.Argument(metavar="FIRST", min=1, help="Height of the block you trust.")],
    second: Annotated[int, typer.Argument(metavar="SECOND", min=1, help="Height of a later block.")],
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Print a proof, as JSON, that results were only appended between two blocks, for `holdfast chain verify FILE`."""
    print_json(call_node(NodeAddress(data, url, token_file, ca), "chain.proveConsistency", first=first, second=second))


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
