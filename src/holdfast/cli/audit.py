"""`holdfast audit`: privileged actions (SEC-001), and whether jobs were assigned by the rules (MAT-006)."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, Final

import msgspec
import typer

from holdfast.cli import make_app
from holdfast.cli.db.stores import open_stores
from holdfast.cli.terminal.abbreviations import find_key
from holdfast.cli.terminal.node_client import NodeSession, run_on_node
from holdfast.cli.terminal.options import (
    AfterEvent,
    ConfigFile,
    Data,
    Json,
    JsonLines,
    Limit,
    NodeAddress,
    OldestFirst,
    Wide,
    on_node,
)
from holdfast.cli.terminal.progress import ProgressLine
from holdfast.cli.terminal.reporting import load_settings, report_errors, value_or_exit
from holdfast.cli.terminal.tables import format_time, pluralize, print_json, print_json_line, print_more, short_id
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Event
from holdfast.history.audit import AuditReport, Difference, audit

app = make_app(no_args_is_help=True, help="Show privileged actions, and check that jobs were assigned by the rules.")
EXIT_DIFFERENT: Final = 1
VALUE_SHOWN: Final = 40
LOCAL: Final = "local"
"""The actor of what was done over the node's socket."""


# ------------------------------------------------------------------------------------------------ privileged actions


@app.command(
    example="holdfast audit log --actor local --limit 20\nholdfast audit log --oldest-first --after 1200 --json"
)
@on_node
def log(
    address: NodeAddress,
    actor: Annotated[str | None, typer.Option(help="Only this key's, by its id or label, or `local`.")] = None,
    after: AfterEvent = 0,
    limit: Limit = 100,
    oldest_first: OldestFirst = False,
    wide: Wide = False,
    as_json: JsonLines = False,
) -> None:
    """Show privileged actions, newest first: when, by whom, which method, and the events it caused.

    The journal records every action in the same batch as its events and before them: no action is without an actor.
    With --oldest-first, --after is the last event that you have seen. Over --url it needs an operator's or auditor's
    key.
    """
    progress = ProgressLine("searching")

    async def print_actions(node: NodeSession) -> tuple[int, int | None]:
        count, beyond = 0, after
        key = actor if actor in (None, LOCAL) else await find_key(node, actor)
        while True:
            params = {"after": beyond, "limit": limit - count, "actor": key, "newest_first": not oldest_first}
            page = await node.call("audit.listActions", **params)
            if page["rows"]:
                progress.end()
            for action in page["rows"]:
                print_json_line(action) if as_json else print(_format_action(action, wide=wide), flush=True)
            count += len(page["rows"])
            beyond = page["next_after"]
            if beyond is None or count >= limit:
                return count, beyond
            progress.show_text(f"event {beyond} of {page['as_of']}")

    try:
        count, beyond = run_on_node(address, print_actions)
    finally:
        progress.end()
    if count == 0 and not as_json:
        print("no privileged actions")
    print_more(beyond)


def _format_action(action: dict[str, Any], *, wide: bool) -> str:
    """Ids and long values are shortened unless `wide`."""
    lines = [f"{action['number']:<8}{format_time(action['time_ms'])}  {action['actor']:<16}  {action['method']}"]
    for event in action["events"]:
        given = {name: str(value) for name, value in event["event"].items() if value not in ("", None, [])}
        fields = "  ".join(f"{name}={value if wide else _shorten(value)}" for name, value in given.items())
        lines.append(f"        {event['number']}  {event['type']}  {fields}")
    return "\n".join(lines)


def _shorten(value: str) -> str:
    shown = short_id(value)
    return f"{shown[: VALUE_SHOWN - 1]}…" if len(shown) > VALUE_SHOWN else shown


# ------------------------------------------------------------------------------------------------ assignments


@app.command(example="holdfast audit match --from 120000")
def match(
    since: Annotated[int, typer.Option("--from", metavar="EVENT", min=1, help="Only from this event on.")] = 1,
    until: Annotated[
        int | None, typer.Option("--to", metavar="EVENT", min=1, help="Only up to this event. [default: the last]")
    ] = None,
    data: Data = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Decide every assignment again, from the journal alone, and compare.

    An assignment follows from the queue, the providers, the policy and the head's beacon at that moment; the journal
    has all of them. It works with a running node or a stopped one, with either store and with archived batches.

    Exit code 0: all assignments follow the rules. 1: one does not; both sides of the first one are shown. 2: bad input.
    """
    settings = load_settings(config, {"data": data}, with_stores=True)
    progress, start_s = ProgressLine("auditing"), time.monotonic()

    async def audit_journal() -> AuditReport | Refused:
        async with open_stores(settings) as stores:
            progress.total = (await stores.journal.tip()).number
            return await audit(stores.journal, stores.snapshots, stores.policy, since, until, progress.show_batch)

    with report_errors():
        try:
            report = value_or_exit(asyncio.run(audit_journal()))
        finally:
            progress.end()
        print_json(_audit_as_values(report)) if as_json else _print_match_audit(report, time.monotonic() - start_s)
        if report.difference is not None:
            raise typer.Exit(EXIT_DIFFERENT)


def _print_match_audit(report: AuditReport, took_s: float) -> None:
    span = f"events {report.first} to {report.last}, {took_s:.1f} s"
    if report.difference is None:
        ticks = pluralize(report.ticks, "tick")
        print(f"as the rules give it: {pluralize(report.assignments, 'assignment')} in {ticks} decided again ({span})")
        return
    difference = report.difference
    print(f"different: event {difference.event}, in batch {difference.batch} of {format_time(difference.time_ms)}")
    print(f"  the journal has  {_format_event(difference.actual)}")
    print(f"  the rules give   {_format_event(difference.expected)}")
    print(f"before it {pluralize(report.assignments, 'assignment')} were as the rules give them ({span})")


def _format_event(event: Event | None) -> str:
    if event is None:
        return "nothing more"
    return f"{type(event).public_name}  " + "  ".join(f"{name}={value}" for name, value in _fields(event).items())


def _fields(event: Event) -> dict[str, Any]:
    values = msgspec.structs.asdict(event)
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in values.items()}


def _audit_as_values(report: AuditReport) -> dict[str, Any]:
    values = msgspec.structs.asdict(report)
    return values | {"difference": None if report.difference is None else _difference_as_values(report.difference)}


def _difference_as_values(difference: Difference) -> dict[str, Any]:
    sides = {"actual": difference.actual, "expected": difference.expected}
    return msgspec.structs.asdict(difference) | {
        name: None if event is None else {"type": type(event).public_name, **_fields(event)}
        for name, event in sides.items()
    }
