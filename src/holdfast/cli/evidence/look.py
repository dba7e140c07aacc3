"""`holdfast evidence ls` and `show`: sessions, their marks, and their records as they came."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import msgspec
import typer

from holdfast.cli.asking import Asked, Ca, Data, Json, Place, TokenFile, Url, run
from holdfast.cli.columns import print_json, print_table, when
from holdfast.cli.speak import refuse
from holdfast.core.refusal import Refused

PAGE: Final = 1_000
Channel = Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel: a provider's id, or a v0.1 sender's.")]


def ls(
    channel: Annotated[str | None, typer.Option(help="Only this channel's.")] = None,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """All sessions: how far each has come, whether more can come, and how far its sender is ahead while connected."""
    found = run(Place(data, url, token_file, ca), lambda node: _all(node, channel))
    if as_json:
        print_json(found)
        return
    heads = ("CHANNEL", "SESSION", "ACKED", "PRUNED", "LAG", "STREAMS", "STATE", "LAST", "DEAD LETTERS")
    print_table(heads, [_line(each) for each in found])


async def _all(node: Asked, channel: str | None) -> list[Any]:
    return [each async for each in sessions(node, channel)]


async def sessions(node: Asked, channel: str | None) -> AsyncIterator[dict[str, Any]]:
    """Page by page."""
    cursor: str | None = ""
    while cursor is not None:
        page = await node.call("evidence.listSessions", channel=channel, limit=PAGE, cursor=cursor)
        for each in page["sessions"]:
            yield each
        cursor = page["next_cursor"]


def _line(one: dict[str, Any]) -> tuple[object, ...]:
    state = "final" if one["is_final"] else "ended with a fence" if one["ending"] == "FENCE" else "open"
    lag, last = one["lag"], when(one["taken_ms"] or None)
    marks = (one["acked"], one["pruned"] or None, None if lag is None else str(lag), one["streams"])
    return (one["channel"], one["session"], *marks, state, last, one["letters"] or None)


def show(
    channel: Channel,
    session: Annotated[str | None, typer.Option(help="Only this session. [default: all, by name]")] = None,
    after: Annotated[int | None, typer.Option(min=0, help="Begin behind this sequence; with --session.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="So many records. [default: all]")] = None,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Annotated[bool, typer.Option("--json", help="The records as they came, one JSON line each.")] = False,
) -> None:
    """The records of a channel, in order. A line of type DEAD_LETTER stands where a record was none."""
    if after is not None and session is None:
        refuse(Refused("RPC-001", "--after is a sequence of one session", "name it with --session", "InvalidParams"))

    async def printed(node: Asked) -> int:
        names = [session] if session is not None else [one["session"] for one in await _all(node, channel)]
        count = 0
        for name in names:
            async for line in records(node, channel, name, after):
                if limit is not None and count >= limit:
                    return count
                print(line if as_json else _shown(name, line))
                count += 1
        return count

    if run(Place(data, url, token_file, ca), printed) == 0 and not as_json:
        print("no records")


async def records(node: Asked, channel: str, session: str, after: int | None) -> AsyncIterator[str]:
    """Everything the node holds of a session behind a sequence, page by page."""
    while True:
        page = await node.call("evidence.getRecords", channel=channel, session=session, after=after, limit=PAGE)
        for line in page["lines"]:
            yield line
        after = page["first"] + len(page["lines"]) - 1
        if not page["lines"] or after >= page["acked"]:
            return


def _shown(session: str, line: str) -> str:
    told = msgspec.json.decode(line)
    payload = "  ".join(f"{name}={value}" for name, value in told["payload"].items() if value not in ("", None))
    when_, kind = told["emitted_utc"] or "-", told["payload_type"]
    return f"{session}  {told['sequence']:>8}  {when_:<24}  {kind:<20}  {payload[:160]}"
