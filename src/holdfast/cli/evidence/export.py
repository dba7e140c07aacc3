"""`holdfast evidence export` and `asrun`: write evidence into files, resuming where the last run ended."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from holdfast.adapters.files import AtomicFolder
from holdfast.cli.evidence.show import Channel, records, sessions
from holdfast.cli.terminal.node_client import NodeSession, run_on_node
from holdfast.cli.terminal.options import Json, NodeAddress, on_node
from holdfast.cli.terminal.progress import ProgressLine
from holdfast.cli.terminal.reporting import refuse
from holdfast.cli.terminal.tables import print_outcome
from holdfast.core.base.errors import Refused
from holdfast.history.asrun_log import AsRunLog
from holdfast.spool.files.names import SPOOL, why_not_id
from holdfast.system.durable_files import sync_file

LINES_PER_WRITE: Final = 1_000
To = Annotated[Path, typer.Option("--to", help="The folder; the channel gets its own folder in it.")]


@on_node
def export(
    address: NodeAddress,
    channel: Channel,
    to: To,
    session: Annotated[str | None, typer.Option(help="Only this session.")] = None,
    as_json: Json = False,
) -> None:
    """Write the records of a channel as they came: FOLDER/CHANNEL/SESSION.spool.jsonl, one line per record.

    Existing files are checked and continued, so that it may be interrupted and run again. No record is missing between
    the lines of a file. If the beginning of a session was pruned, its file begins later, and a message says so.
    """
    if (refusal := why_not_id("channel", channel)) is not None:
        refuse(refusal)

    progress = ProgressLine("exporting")

    async def export_channel(node: NodeSession) -> int:
        selected = [each async for each in sessions(node, channel) if session in (None, each["session"])]
        if not selected:
            refuse(_unknown_session(channel, session))
        written = 0
        for number, each in enumerate(selected):
            progress.show_count(number, len(selected), f"sessions, {written} records")
            written += await _export_session(node, to / channel, channel, each["session"], each["pruned"])
        progress.end()
        return written

    _print_written(run_on_node(address, export_channel), "records written", to / channel, as_json=as_json)


def _print_written(count: int, what: str, folder: Path, *, as_json: bool) -> None:
    print_outcome({"count": count, "folder": str(folder)}, f"{count} {what} to {folder}", as_json=as_json)


def _unknown_session(channel: str, session: str | None = None) -> Refused:
    """A misspelt name must not look like a successful export of nothing."""
    which = (
        f"no session of channel {channel!r}" if session is None else f"no session {session!r} of channel {channel!r}"
    )
    return Refused("EVD-001", f"the node has {which}", "holdfast evidence list shows them", "NotFound")


async def _export_session(node: NodeSession, folder: Path, channel: str, session: str, pruned: int) -> int:
    path = folder / f"{session}{SPOOL}"
    last = _last_exported(path)
    if last < pruned:
        message = f"{path}: ends with {last or 'nothing'}, the node has pruned the records up to {pruned}"
        if last:
            refuse(Refused("EVD-008", message, "export into another folder", "EvidencePruned"))
        last = pruned
        print(f"{session}: the records up to {pruned} were pruned before")
    written = 0
    with path.open("ab") as file:
        async for lines in _in_chunks(records(node, channel, session, last)):
            last = _check_sequence(path, last, lines)
            file.write(b"".join(line.encode() + b"\n" for line in lines))
            written += len(lines)
        file.flush()
        sync_file(file.fileno())
    return written


async def _in_chunks(lines: AsyncIterator[str]) -> AsyncIterator[list[str]]:
    chunk: list[str] = []
    async for line in lines:
        chunk.append(line)
        if len(chunk) >= LINES_PER_WRITE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _check_sequence(path: Path, last: int, lines: list[str]) -> int:
    """EVD-002: every record follows the one before it; returns the last sequence."""
    for line in lines:
        if _sequence(line.encode()) != last + 1:
            refuse(Refused("EVD-002", f"{path}: a record that does not follow {last}", "run holdfast db check"))
        last += 1
    return last


def _last_exported(path: Path) -> int:
    """The last sequence of an earlier export, after a check of all its lines; a torn last line is truncated."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        return 0
    raw = path.read_bytes()
    complete = raw[: raw.rfind(b"\n") + 1]
    last = 0
    for line in complete.split(b"\n")[:-1]:
        sequence = _sequence(line)
        if sequence is None or (last and sequence != last + 1):
            hint = "the file was changed: export into another folder"
            refuse(Refused("EVD-002", f"{path}: what follows record {last} is not the next one", hint))
        last = sequence
    if len(complete) < len(raw):
        os.truncate(path, len(complete))
    return last


def _sequence(line: bytes) -> int | None:
    try:
        return int(msgspec.json.decode(line)["sequence"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError):
        return None


@on_node
def asrun(
    address: NodeAddress,
    channel: Channel,
    to: To,
    as_json: Json = False,
) -> None:
    """Write the as-run log of a RetroVue channel, by day: FOLDER/CHANNEL/YYYY-MM-DD.asrun, and .asrun.jsonl beside it.

    Entries that the log already has are not written again, so that it may be run repeatedly.
    """
    if (refusal := why_not_id("channel", channel)) is not None:
        refuse(refusal)

    async def write_log(node: NodeSession) -> int:
        log, total = AsRunLog(AtomicFolder(to / channel), channel), 0
        selected = [each async for each in sessions(node, channel)]
        if not selected:
            refuse(_unknown_session(channel))
        for each in selected:
            async for lines in _in_chunks(records(node, channel, each["session"], None)):
                total += await log.write(lines)
        return total

    _print_written(run_on_node(address, write_log), "entries added", to / channel, as_json=as_json)
