"""What is known to be missing from a session, judged from its markers, the names of its files and the last file's end.

SP-LOSS-001: markers are durable. Records at or below one that are not here are a loss, named with their range;
so are a file that is gone beside its markers, and a link or folder in the place of one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.spool.files.disk import FileEntry
from holdfast.spool.files.names import SPOOL, parse_file_name
from holdfast.spool.files.recover import FileVerdict, Tail
from holdfast.spool.files.segment_log import Segment
from holdfast.spool.files.session_markers import Markers


class Loss(msgspec.Struct, frozen=True, gc=False):
    """Records that should be here and are not."""

    missing: tuple[int, int] | None
    """The first and the last one; None where the range is not known."""
    why: str

    def __str__(self) -> str:
        if self.missing is None:
            return self.why
        first, last = self.missing
        return f"{f'record {first} is' if first == last else f'records {first} to {last} are'} {self.why}"


def find_losses(
    markers: Markers, segments: Sequence[Segment], tail: Tail | None, entries: Sequence[FileEntry]
) -> tuple[Loss, ...]:
    """All losses, in the order of their records. `entries` are those of the session."""
    if markers.final is not None and markers.final.is_delivered:
        return ()  # it is being deleted: the receiver has everything
    found = [*_not_files(markers, segments, entries), *_before_first(markers, segments)]
    if tail is not None and tail.verdict is FileVerdict.DAMAGED:
        found.append(_damaged_tail(tail))
    elif (last := tail.last if tail is not None else 0) < markers.highest and not found:
        where = "the end of the last file" if segments else "the spool file, which is gone"
        found.append(Loss((last + 1, markers.highest), f"missing from {where}: the markers name {markers.highest}"))
    for name in markers.unreadable:
        found.append(Loss(None, f"the marker {name} cannot be read: which sequences were used is unknown"))
    return tuple(found)


def why_lost(losses: Sequence[Loss], first: int, last: int) -> str:
    """Why some of these records are not here; empty where none of them is known to be lost."""
    for loss in losses:
        if loss.missing is not None and loss.missing[0] <= last and first <= loss.missing[1]:
            return str(loss)
    return ""


def _not_files(markers: Markers, segments: Sequence[Segment], entries: Sequence[FileEntry]) -> list[Loss]:
    """A link or a folder in the place of a record file: it held everything up to the next file."""
    found = []
    for entry in entries:
        parsed = parse_file_name(entry.name)
        if entry.is_regular or parsed is None or parsed.kind != SPOOL or parsed.is_temp:
            continue
        first = parsed.number or 1
        last = min((segment.first - 1 for segment in segments if segment.first > first), default=markers.highest)
        why = f"missing: in the place of {entry.name} is a link or a folder"
        found.append(Loss((first, last), why) if last >= first else Loss(None, f"records from {first} on are {why}"))
    return found


def _before_first(markers: Markers, segments: Sequence[Segment]) -> list[Loss]:
    """Only what was acked is ever dropped. Where the ack cannot be read, nothing is known about what came before."""
    if not segments or markers.unreadable or segments[0].first <= markers.acked + 1:
        return []
    why = f"missing: the first file begins with {segments[0].first}, acked is {markers.acked}"
    return [Loss((markers.acked + 1, segments[0].first - 1), why)]


def _damaged_tail(tail: Tail) -> Loss:
    assert tail.invalid is not None
    missing = tail.invalid.missing or (tail.last + 1, max(tail.last + 1, tail.durable_until))
    return Loss(missing, f"damaged or missing from byte {tail.invalid.start} on: {tail.invalid.why}")
