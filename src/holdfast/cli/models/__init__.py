"""`holdfast models`: who offers what, at which price, and how long one waits now."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli import make_app
from holdfast.cli.terminal.node_client import call_node
from holdfast.cli.terminal.options import Json, NodeAddress, on_node
from holdfast.cli.terminal.tables import print_json, print_table
from holdfast.core.base.values import Kind

app = make_app()


@app.command(example="holdfast models --kind AI")
@on_node
def models(
    address: NodeAddress,
    kind: Annotated[Kind | None, typer.Option(help="Only this kind of work.")] = None,
    as_json: Json = False,
) -> None:
    """List what providers offer now: models, programs and circuits, with prices, free slots and the usual wait."""
    catalogue = call_node(address, "aicf.listOffers")
    catalogue["offers"] = [each for each in catalogue["offers"] if kind is None or each["kind"] == kind]
    if as_json:
        print_json(catalogue)
        return
    heads = ("KIND", "NAME", "PROVIDERS", "FREE SLOTS", "PRICE", "WAIT", "REGIONS", "LABELS")
    print_table(heads, [_row(offer, catalogue["waits"][offer["kind"]]) for offer in catalogue["offers"]])


def _row(offer: dict[str, Any], wait: dict[str, Any]) -> tuple[object, ...]:
    low, high = offer["price_min"], offer["price_max"]
    return (
        offer["kind"],
        offer["name"],
        offer["providers"],
        offer["free_slots"],
        low if low == high else f"{low}–{high}",
        format_wait(wait["wait_p50_ms"]),
        offer["regions"],
        offer["labels"],
    )


def format_wait(ms: int | None) -> str:
    """Rounded up to a bound: `≤ 50 ms`, `≤ 2.5 s`."""
    if ms is None:
        return "?"
    return f"≤ {ms} ms" if ms < 1_000 else f"≤ {ms / 1000:g} s"
