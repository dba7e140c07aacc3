"""`holdfast blob status HEIGHT`: whether the blobs of a block are archived, where, by whom, and how sure that is."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.terminal.node_client import NodeAddress, call_node
from holdfast.cli.terminal.options import Ca, Data, Json, TokenFile, Url
from holdfast.cli.terminal.tables import format_time, print_json, print_record, print_table

Height = Annotated[int, typer.Argument(metavar="HEIGHT", min=0, help="The block's height.")]


def status(
    height: Height,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Show the blobs of a block: pending, archived or pruned, with their locators, who archived them, and when."""
    view = call_node(NodeAddress(data, url, token_file, ca), "blob.status", height=height)
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
        print_table(heads, rows)
