"""`holdfast blob status HEIGHT`: whether the blobs of a block are archived, where, by whom, and how sure that is."""

from __future__ import annotations

from typing import Any

from holdfast.cli.chain.show import BlockArgument
from holdfast.cli.terminal.abbreviations import find_height
from holdfast.cli.terminal.node_client import NodeSession, run_on_node
from holdfast.cli.terminal.options import Json, NodeAddress, Wide, on_node
from holdfast.cli.terminal.tables import format_time, print_json, print_record, print_table


@on_node
def status(
    address: NodeAddress,
    block: BlockArgument,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """Show the blobs of a block: pending, archived or pruned, with their locators, who archived them, and when."""

    async def read(node: NodeSession) -> Any:
        return await node.call("blob.status", height=await find_height(node, block))

    view = run_on_node(address, read)
    if as_json:
        print_json(view)
        return
    print_record({"height": view["height"], "status": view["status"], "blobs": len(view["blobs"])})
    heads = ("index", "status", "assurance", "archived at", "by", "attempts", "locator")
    rows = [
        [
            blob["number"],
            blob["status"],
            blob["assurance"],
            format_time(blob["archived_at"] * 1_000 if blob["locator"] else None),
            blob["archived_by"],
            blob["attempts"],
            blob["locator"] or blob["reason"],
        ]
        for blob in view["blobs"]
    ]
    if rows:
        print_table(tuple(head.upper() for head in heads), rows, wide=wide)
