"""`holdfast status`: show node status."""

from __future__ import annotations

from holdfast.cli import make_app
from holdfast.cli.terminal.node_client import call_node
from holdfast.cli.terminal.options import Json, NodeAddress, on_node
from holdfast.cli.terminal.tables import print_json, print_record

app = make_app()


@app.command(example="holdfast status\nholdfast status --url https://node.example:8451 --token-file alice.token")
@on_node
def status(address: NodeAddress, as_json: Json = False) -> None:
    """Show node status: role, term, last batch and event, and how far the tables are behind."""
    answer = call_node(address, "node.getStatus")
    print_json(answer) if as_json else print_record(answer)
