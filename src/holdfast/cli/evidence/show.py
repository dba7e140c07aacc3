"""`holdfast evidence list` and `show`: sessions, their watermarks, and their records as they came."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import msgspec
import typer

from holdfast.cli.terminal.node_client import NodeSession, run_on_node
from holdfast.cli.terminal.options import Json, NodeAddress, Wide, on_node
from holdfast.cli.terminal.reporting import refuse
from holdfast.cli.terminal.tables import format_time, print_json, print_table
from holdfast.core.base.errors import Refused

PAGE: Final = 1_000
Channel = Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel: a provider's id, or a v0.1 sender's.")]


@on_node
def list_(
    address: NodeAddress,
    channel: Annotated[str | None, typer.Option(help="Only this channel's.")] = None,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """List all sessions: how far each is acked, whether more can come, and its sender's lag while connected."""
    all_sessions = run_on_node(address, lambda node: _list_sessions(node, channel))
    if as_json:
        print_json(all_sessions)
        return
    heads = ("CHANNEL", "SESSION", "ACKED", "PRUNED", "LAG", "STREAMS", "STATE", "LAST", "DEAD LETTERS")
    print_table(heads, [_row(session) for session in all_sessions], wide=wide)


async def _list_sessions(node: NodeSession, channel: str | None) -> list[Any]:
    return [each async for each in sessions(node, channel)]


async def sessions(node: NodeSession, channel: str | None) -> AsyncIterator[dict[str, Any]]:
    """Page by page."""
    cursor: str | None = ""
    while cursor is not None:
        page = await node.call("evidence.listSessions", channel=channel, limit=PAGE, cursor=cursor)
        for each in page["sessions"]:
            yield each
        cursor = page["next_cursor"]


def _row(session: dict[str, Any]) -> tuple[object, ...]:
    lag = session["lag"]
    return (
        session["channel"],
        session["session"],
        session["acked"],
        session["pruned"] or None,
        None if lag is None else str(lag),
        session["streams"],
        "final" if session["is_final"] else "ended with a fence" if session["ending"] == "FENCE" else "open",
        format_time(session["stored_ms"] or None),
        session["dead_letters"] or None,
    )


@on_node
def show(
    address: NodeAddress,
    channel: Channel,
    session: Annotated[str | None, typer.Option(help="Only this session. [default: all, by name]")] = None,
    after: Annotated[int | None, typer.Option(min=0, help="Begin after this sequence; with --session.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="How many records. [default: all]")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The records as they came, one JSON line per record.")
    ] = False,
) -> None:
    """Show the records of a channel in order. A line of type DEAD_LETTER replaces a record that was rejected."""
    if after is not None and session is None:
        refuse(Refused("RPC-001", "--after is a sequence of one session", "pass it with --session", "InvalidParams"))

    async def print_records(node: NodeSession) -> int:
        names = [session] if session is not None else [each["session"] for each in await _list_sessions(node, channel)]
        count = 0
        for name in names:
            async for line in records(node, channel, name, after):
                if limit is not None and count >= limit:
                    return count
                print(line if as_json else _format_record(name, line))
                count += 1
        return count

    if run_on_node(address, print_records) == 0 and not as_json:
        print("no records")


async def records(node: NodeSession, channel: str, session: str, after: int | None) -> AsyncIterator[str]:
    """The session's records after a sequence, as far as the node has them, page by page."""
    while True:
        page = await node.call("evidence.listRecords", channel=channel, session=session, after=after, limit=PAGE)
        for line in page["lines"]:
            yield line
        after = page["first"] + len(page["lines"]) - 1
        if not page["lines"] or after >= page["acked"]:
            return


def _format_record(session: str, line: str) -> str:
    record = msgspec.json.decode(line)
    payload = "  ".join(f"{name}={value}" for name, value in record["payload"].items() if value not in ("", None))
    emitted, kind = record["emitted_utc"] or "-", record["payload_type"]
    return f"{session}  {record['sequence']:>8}  {emitted:<24}  {kind:<20}  {payload[:160]}"
