"""`holdfast events`: follow the journal's events from any point; none is missed and none is repeated."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.api.derived_events import parse_cursor
from holdfast.api.public_events import event_names
from holdfast.cli import make_app
from holdfast.cli.terminal.node_client import patient_client
from holdfast.cli.terminal.options import JsonAlways, NodeAddress, on_node
from holdfast.cli.terminal.reporting import refuse, report_errors
from holdfast.cli.terminal.tables import print_json_line
from holdfast.core.base.errors import Refused
from holdfast.system.did_you_mean import did_you_mean

if TYPE_CHECKING:
    from holdfast.client import NodeEvent

app = make_app()


@app.command(example="holdfast events --no-follow --limit 20\nholdfast events --type jobCompleted --after 1200")
@on_node
def events(
    address: NodeAddress,
    after: Annotated[
        str,
        typer.Option(
            metavar="EVENT",
            help="Start after this event: the last `number` you saw, or `number.index` where it had one.",
        ),
    ] = "0",
    limit: Annotated[int | None, typer.Option(min=1, help="End after this many. [default: never]")] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Continue with new events, or end at the newest.")
    ] = True,
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="Only this type, for example jobAdmitted. May be repeated.")
    ] = None,
    as_json: JsonAlways = True,
) -> None:
    """Print durable events as JSON lines: old ones first, then new ones, also across a restart of the node.

    Operators and auditors see every event; a requester's key sees those of its own account and of blocks.
    """
    _check_types(type_ or [])
    _check_cursor(after)
    with report_errors(), patient_client(address) as client:
        for event in islice(client.events(after, type_ or None, follow=follow), limit):
            print_json_line(_as_shown(event))


def _as_shown(event: NodeEvent) -> dict[str, Any]:
    shown = {"number": event.number, "time_ms": event.time_ms, "type": event.type, "event": event.event}
    return shown | ({"index": event.index} if event.index else {})


def _check_cursor(after: str) -> None:
    if parse_cursor(after) is None:
        message = f"--after: {after!r:.80} is neither `number` nor `number.index`"
        refuse(Refused("EVT-001", message, "keep those of the last event you saw", "InvalidParams"))


def _check_types(types: list[str]) -> None:
    known = event_names()
    for name in types:
        if name not in known:
            hint = did_you_mean(name, known, otherwise=f"there are {', '.join(known)}")
            refuse(Refused("EVT-001", f"--type: no event {name!r:.80}", hint, "InvalidParams"))
