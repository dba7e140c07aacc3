"""`holdfast spool compact` and `seal`: delete delivered records, and finish sessions that have no final event."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from holdfast.cli.spool.session import (
    SpoolFile,
    exit_with,
    format_size,
    open_locked,
    paths_of,
    refuse_foreign,
    report_spool_errors,
    spool_value_or_exit,
)
from holdfast.cli.terminal.clock import now_ms
from holdfast.cli.terminal.options import Json, Yes
from holdfast.cli.terminal.reporting import confirm
from holdfast.cli.terminal.tables import print_outcome
from holdfast.core.base.errors import Refused
from holdfast.spool import SpoolPolicy, channel
from holdfast.spool.files.disk import RealDisk
from holdfast.spool.files.record import CHANNEL_TERMINATED

UNCAPPED: Final = SpoolPolicy(channel_bytes_max=1 << 62, reserve_bytes=0)
"""The cap belongs to the program that writes the session and is not known here. A final record fits its reserve."""


def compact(file: SpoolFile, as_json: Json = False) -> None:
    """Delete the acked records of a session, and the finished sessions of its channel that were fully delivered.

    Unacked records stay byte for byte. An open session compacts itself; this is for a closed one.
    """
    with report_spool_errors():
        paths, disk = paths_of(file), RealDisk()
        refuse_foreign(paths)
        before = sum(entry.size for entry in disk.files(paths.folder))
        if not channel.read_status(disk, paths).is_reclaimable:
            spool = open_locked(file)
            spool.compact()
            spool.step()
            spool.close()
        reclaimed = channel.reclaim(disk, paths.folder, now_ms(), except_session="")
        after = sum(entry.size for entry in disk.files(paths.folder))
        deleted = f", {reclaimed} finished sessions deleted" if reclaimed else ""
        answer = {"channel": paths.channel, "bytes_before": before, "bytes": after, "sessions_deleted": reclaimed}
        outcome = f"channel {paths.channel}: {format_size(before)} before, {format_size(after)} now{deleted}"
        print_outcome(answer, outcome, as_json=as_json)


def seal(
    file: SpoolFile,
    yes: Yes = False,
    detail: Annotated[str, typer.Option(help="Text for the receiver, beside the reason.")] = "",
    as_json: Json = False,
) -> None:
    """Finish a session that has no final event, by a last record CHANNEL_TERMINATED (SEALED_BY_OPERATOR).

    It accepts no more records, and is deleted when the receiver has acked all of it. A session that still has a writer,
    or is damaged, is not sealed.
    """
    with report_spool_errors():
        paths = paths_of(file)
        refuse_foreign(paths)
        status = channel.read_status(RealDisk(), paths)
        if status.is_finished:
            message, hint = f"session {paths.session} is finished already", "nothing is to be done"
            exit_with(Refused("SP-RET-001", message, hint, "SessionFinished"))
        question = f"Seal session {paths.session}? It accepts no record after {status.last}."
        confirm(question, "SP-RET-001", yes=yes)
        spool = open_locked(file, UNCAPPED)
        payload = {"termination_utc_ms": now_ms(), "reason": "SEALED_BY_OPERATOR", "detail": detail}
        answer = spool.emit(CHANNEL_TERMINATED, payload)
        spool.step()
        refusal = spool.close(final=True)
        ticket = spool_value_or_exit(answer)
        if refusal is not None:
            exit_with(refusal)
        outcome = f"sealed: the last record of session {paths.session} is {ticket.sequence}"
        print_outcome({"session": paths.session, "last": ticket.sequence}, outcome, as_json=as_json)
