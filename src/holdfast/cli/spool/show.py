"""`holdfast spool list`, `show`, `replay` and `tail`: read spools without changing them.

Whether a session is open is found by trying its lock, which is released at once.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.spool.session import (
    EXIT_NOT_INTACT,
    SpoolFile,
    exit_with,
    format_ranges,
    format_size,
    is_open_elsewhere,
    paths_of,
    report_spool_errors,
)
from holdfast.cli.terminal.options import Json, JsonAlways
from holdfast.cli.terminal.tables import print_json, print_table
from holdfast.core.base.errors import Refused
from holdfast.spool import channel
from holdfast.spool.channel import SessionStatus
from holdfast.spool.files.disk import RealDisk
from holdfast.spool.files.losses import why_lost
from holdfast.spool.files.names import SessionPaths
from holdfast.spool.files.recover import FileVerdict
from holdfast.spool.files.segment_log import ReadView, SegmentLog
from holdfast.spool.files.session_markers import read_released
from holdfast.spool.reader import SpoolReader
from holdfast.spool.session import last_sequence

POLL_S = 0.2
COLUMNS = ("CHANNEL", "SESSION", "RECORDS", "ACKED", "LEFT", "SIZE", "STATE")


def list_(
    root: Annotated[Path, typer.Argument(metavar="DIR", help="The folder with the channels' folders.")],
    as_json: Json = False,
) -> None:
    """List all sessions of all channels: their records, how far they are acked, and their state.

    Only the end of each file is read: `verify` reads all of it. Exit code 0: no damage. 1: one is damaged. 2:
    unreadable.
    """
    with report_spool_errors():
        disk = RealDisk()
        statuses = [
            channel.read_status(disk, SessionPaths(root / name, name, session))
            for name in disk.folders(root)
            for session in channel.list_sessions(disk, root / name)
        ]
        if as_json:
            print_json([_as_values(status) for status in statuses])
        else:
            print_table(COLUMNS, [_row(status) for status in statuses])
        raise typer.Exit(EXIT_NOT_INTACT if any(status.losses for status in statuses) else 0)


def _row(status: SessionStatus) -> tuple[object, ...]:
    records = f"{status.first}-{status.last}" if status.segments and status.last >= status.first else "none"
    unacked = max(0, status.last - max(status.acked, status.first - 1))
    return (
        status.paths.channel,
        status.paths.session,
        records,
        status.acked,
        unacked,
        format_size(status.bytes_used),
        _state(status),
    )


def _state(status: SessionStatus) -> str:
    if is_open_elsewhere(status.paths):
        return "open"
    if status.losses:
        return f"DAMAGED: {status.damage}"
    if status.is_foreign:
        return "foreign: another program's, only read"
    if status.is_reclaimable:
        return "finished, reclaimable"
    torn = ", torn tail (recoverable)" if status.tail is not None and status.tail.verdict is FileVerdict.TORN else ""
    return ("finished" if status.is_finished else "unfinished") + torn


def _as_values(status: SessionStatus) -> dict[str, object]:
    return {
        "channel": status.paths.channel,
        "session": status.paths.session,
        "first": status.first,
        "last": status.last,
        "acked": status.acked,
        "bytes": status.bytes_used,
        "state": _state(status),
        "files": [segment.path.name for segment in status.segments],
        "damage": [str(loss) for loss in status.losses],
    }


def show(file: SpoolFile, as_json: Json = False) -> None:
    """Show a session: its files, records, acks and state."""
    with report_spool_errors():
        disk, paths = RealDisk(), paths_of(file)
        status = channel.read_status(disk, paths)
        if as_json:
            print_json(_as_values(status))
            return
        print(f"channel    {paths.channel}\nsession    {paths.session}\nstate      {_state(status)}")
        for segment in status.segments:
            size = format_size(segment.path.stat().st_size)
            print(f"file       {segment.path.name}  from record {segment.first}  {size}")
        print(f"records    {status.first} to {status.last}\nacked      {status.acked}")
        if status.tail is not None and status.tail.last_record is not None:
            print(f"last       {status.tail.last_record.payload_type} at {status.tail.last_record.emitted_utc}")
        if status.final is not None:
            print(f"final      record {status.final.sequence} ({status.final.reason})")
        for loss in status.losses:
            print(f"damage     {loss}")
        if released := read_released(disk, paths):
            print(f"released   {format_ranges(released)}")
        if status.quarantined_bytes:
            print(f"quarantine {format_size(status.quarantined_bytes)} in {paths.session}@*.quarantine")


def replay(
    file: SpoolFile,
    after: Annotated[
        int | None, typer.Option(metavar="SEQUENCE", help="Begin after this one. [default: after the ack]")
    ] = None,
    as_json: JsonAlways = True,
) -> None:
    """Print the spooled records as they are in the file, one JSON line per record.

    Of a session that another process has open, only durable records are printed. It stops before a gap and says which
    records are missing, with exit code 1.
    """
    with report_spool_errors():
        paths = paths_of(file)
        status = channel.read_status(RealDisk(), paths)
        start = status.acked if after is None else after
        if after is None and not why_lost(status.losses, 1, status.first - 1):
            start = max(start, status.first - 1)
        for batch in _durable_reader(paths, status).batches(start):
            sys.stdout.buffer.write(b"\n".join(batch.lines) + b"\n")
        sys.stdout.buffer.flush()


def _durable_reader(paths: SessionPaths, status: SessionStatus) -> SpoolReader:
    """Reads without the lock, up to the last record that is durable."""
    tail = status.tail
    if tail is None:
        exit_with(
            Refused("SP-005", f"session {paths.session} has no records", "nothing was ever written to it", "NotFound")
        )
    last = last_sequence(tail)
    if is_open_elsewhere(paths):
        last = min(last, tail.durable_until)
    return _reader(status, ReadView(status.segments, last, tail.data_end))


def _reader(status: SessionStatus, view: ReadView) -> SpoolReader:
    disk, paths = RealDisk(), status.paths
    log = SegmentLog(disk, paths, view, None, None)
    return SpoolReader(log, partial(read_released, disk, paths), status.losses)


def tail(
    file: SpoolFile,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new records, until interrupted.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="How many of the last records to print first.")
    ] = 10,
    as_json: JsonAlways = True,
) -> None:
    """Print the last records, with -f also new ones as they are written, durable or not."""
    with report_spool_errors():
        paths = paths_of(file)
        last = max(0, channel.read_status(RealDisk(), paths).last - lines)
        while True:
            last = _print_after(paths, last)
            if not follow:
                return
            time.sleep(POLL_S)


def _print_after(paths: SessionPaths, last: int) -> int:
    """Print the records after `last`; returns the new last."""
    status = channel.read_status(RealDisk(), paths)
    if status.tail is None or status.tail.last <= last:
        return last
    view = ReadView(status.segments, status.tail.last, status.tail.data_end)
    for batch in _reader(status, view).batches(max(last, status.first - 1)):
        sys.stdout.buffer.write(b"\n".join(batch.lines) + b"\n")
        last = batch.first + len(batch.lines) - 1
    sys.stdout.buffer.flush()
    return last
