"""`holdfast spool compact` and `seal`: letting go of what was delivered, and finishing what nobody finishes."""

from __future__ import annotations

import time
from typing import Annotated, Final

import typer

from holdfast.cli.spool.session import SpoolFile, given, owned, place, refuse, size, told
from holdfast.core.refusal import Refused
from holdfast.spool import SpoolPolicy, channel
from holdfast.spool.disk import RealDisk
from holdfast.spool.record import CHANNEL_TERMINATED

UNCAPPED: Final = SpoolPolicy(channel_bytes_max=1 << 62, reserve_bytes=0)
"""The cap is its program's, and not known here. An end takes less than the reserve that is kept for it."""


def compact(file: SpoolFile) -> None:
    """Drop the acked records of a session, and the finished sessions of its channel that were wholly delivered.

    What is not acked stays byte for byte. A session that is open compacts itself; this is for one that is not.
    """
    with told():
        where, disk = place(file), RealDisk()
        before = sum(entry.size for entry in disk.files(where.folder))
        if not channel.standing(disk, where).may_go:
            spool = owned(file)
            spool.compact()
            spool.step()
            spool.close()
        gone = channel.reclaim(disk, where.folder, time.time_ns() // 1_000_000, but="")
        after = sum(entry.size for entry in disk.files(where.folder))
        deleted = f", {gone} finished sessions deleted" if gone else ""
        print(f"channel {where.channel}: {size(before)} before, {size(after)} now{deleted}")


def seal(
    file: SpoolFile,
    yes: Annotated[bool, typer.Option("--yes", help="Really seal it.")] = False,
    detail: Annotated[str, typer.Option(help="What the receiver is told beside the reason.")] = "",
) -> None:
    """Finish a session that was left without a final event, by a last record CHANNEL_TERMINATED (SEALED_BY_OPERATOR).

    It takes no more records afterwards, and may go when the receiver has acked all of it. A session that still has a
    writer, or is damaged, is not sealed.
    """
    with told():
        where = place(file)
        found = channel.standing(RealDisk(), where)
        if found.is_finished:
            refuse(Refused("SP-RET-001", f"session {where.session} is finished already", "", "SessionFinished"))
        if not yes:
            says = f"session {where.session} would take no more records, its last one is {found.last}"
            refuse(Refused("SP-RET-001", says, "say --yes if its process will not come back", "NotSealed"))
        spool = owned(file, UNCAPPED)
        payload = {"termination_utc_ms": time.time_ns() // 1_000_000, "reason": "SEALED_BY_OPERATOR", "detail": detail}
        answer = spool.emit(CHANNEL_TERMINATED, payload)
        spool.step()
        no = spool.close(final=True)
        ticket = given(answer)
        if no is not None:
            refuse(no)
        print(f"sealed: the last record of session {where.session} is {ticket.sequence}")
