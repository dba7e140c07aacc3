"""`holdfast spool ls`, `show`, `replay` and `tail`: reading spools, without touching them."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.spool.session import NOT_WHOLE, SpoolFile, is_open_elsewhere, place, ranges, refuse, size, told
from holdfast.core.refusal import Refused
from holdfast.spool import channel
from holdfast.spool.channel import Standing
from holdfast.spool.disk import RealDisk
from holdfast.spool.log import Log, View
from holdfast.spool.names import Place
from holdfast.spool.reader import Reader
from holdfast.spool.recover import Verdict
from holdfast.spool.session import damage_of
from holdfast.spool.whole import read_released

POLL_S = 0.2
COLUMNS = ("CHANNEL", "SESSION", "RECORDS", "ACKED", "LEFT", "SIZE", "STATE")


def ls(root: Annotated[Path, typer.Argument(help="The folder that holds the channels' folders.")]) -> None:
    """All sessions of all channels: their records, what the receiver has, and how they stand.

    Only the end of each file is read: `verify` reads it all. Exit code 0: all sound. 1: one is damaged. 2: unreadable.
    """
    with told():
        disk = RealDisk()
        rows: list[tuple[str, ...]] = [COLUMNS]
        is_sound = True
        for name in disk.folders(root):
            for session in channel.sessions(disk, root / name):
                found = channel.standing(disk, Place(root / name, name, session))
                rows.append(_row(found))
                is_sound = is_sound and not _is_damaged(found)
        widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        raise typer.Exit(0 if is_sound else NOT_WHOLE)


def _row(found: Standing) -> tuple[str, ...]:
    records = f"{found.first}-{found.last}" if found.segments and found.last >= found.first else "none"
    left = max(0, found.last - max(found.acked, found.first - 1))
    place = found.place
    return (place.channel, place.session, records, str(found.acked), str(left), size(found.bytes_used), _state(found))


def _is_damaged(found: Standing) -> bool:
    return found.tail is not None and found.tail.verdict is Verdict.DAMAGED


def _state(found: Standing) -> str:
    if is_open_elsewhere(found.place):
        return "open"
    if _is_damaged(found):
        return "DAMAGED: see `holdfast spool verify`"
    if found.may_go:
        return "finished, may go"
    torn = ", torn tail (recoverable)" if found.tail is not None and found.tail.verdict is Verdict.TORN else ""
    return ("finished" if found.is_finished else "unfinished") + torn


def show(file: SpoolFile) -> None:
    """One session in full: its files, records, acks, what happens next."""
    with told():
        disk, where = RealDisk(), place(file)
        found = channel.standing(disk, where)
        print(f"channel    {where.channel}\nsession    {where.session}\nstate      {_state(found)}")
        for segment in found.segments:
            print(f"file       {segment.path.name}  from record {segment.first}  {size(segment.path.stat().st_size)}")
        print(f"records    {found.first} to {found.last}\nacked      {found.acked}")
        if found.tail is not None and found.tail.last_seen is not None:
            print(f"last       {found.tail.last_seen.payload_type} at {found.tail.last_seen.emitted_utc}")
        if found.final is not None:
            print(f"final      record {found.final.sequence} ({found.final.reason})")
        if found.tail is not None and found.tail.verdict is Verdict.DAMAGED:
            print(f"damage     {damage_of(found.tail)}")
        if released := read_released(disk, where):
            print(f"released   {ranges(released)}")
        if found.quarantined_bytes:
            print(f"quarantine {size(found.quarantined_bytes)} in {where.session}@*.quarantine")


def replay(
    file: SpoolFile,
    after: Annotated[int | None, typer.Option(help="Begin behind this sequence. [default: behind the ack]")] = None,
) -> None:
    """Print the spooled records, one JSON line each, as they stand in the file.

    Of a session that somebody has open only records that are known durable are printed. It stops before a hole and
    says which records are missing, exit code 1.
    """
    with told():
        where = place(file)
        found = channel.standing(RealDisk(), where)
        start = max(found.acked, found.first - 1) if after is None else after
        for batch in _reader(where, found).batches(start):
            sys.stdout.buffer.write(b"\n".join(batch.lines) + b"\n")
        sys.stdout.buffer.flush()


def _reader(where: Place, found: Standing) -> Reader:
    """Reads without the lock: what is there now, up to what is surely spooled."""
    tail = found.tail
    if tail is None:
        refuse(Refused("SP-005", f"session {where.session} has no records", "", "NotFound"))
    last = tail.highest if tail.verdict is Verdict.DAMAGED else tail.last
    if is_open_elsewhere(where):
        last = min(last, tail.mark)
    log = Log(RealDisk(), where, View(found.segments, last, tail.data_end), None, None)
    return Reader(log, lambda: read_released(log.disk, where))


def tail(
    file: SpoolFile,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as records come, until interrupted.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="So many of the last records first.")] = 10,
) -> None:
    """The last records, and with -f what comes: the outbox as it is written, durable or not."""
    with told():
        where = place(file)
        last = max(0, _valid_up_to(where) - lines)
        while True:
            last = _printed_after(where, last)
            if not follow:
                return
            time.sleep(POLL_S)


def _valid_up_to(where: Place) -> int:
    return channel.standing(RealDisk(), where).last


def _printed_after(where: Place, last: int) -> int:
    """Print what is there above `last`; the new last."""
    found = channel.standing(RealDisk(), where)
    if found.tail is None or found.tail.last <= last:
        return last
    log = Log(RealDisk(), where, View(found.segments, found.tail.last, found.tail.data_end), None, None)
    for batch in Reader(log, lambda: read_released(log.disk, where)).batches(max(last, found.first - 1)):
        sys.stdout.buffer.write(b"\n".join(batch.lines) + b"\n")
        last = batch.first + len(batch.lines) - 1
    sys.stdout.buffer.flush()
    return last
