"""All sessions of a channel's folder: which there are, how each stands, and which may go (SP-RET-001)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.core.policy.knobs import SpoolPolicy
from holdfast.core.refusal import Refused
from holdfast.spool.disk import Disk, Entry, RealDisk
from holdfast.spool.log import Segment, segments_of
from holdfast.spool.names import FINAL, QUARANTINE, SPOOL, Place, parse
from holdfast.spool.record import CHANNEL_TERMINATED
from holdfast.spool.recover import WINDOW, Tail, Verdict, examine
from holdfast.spool.room import PER_MILLE, is_marked_full
from holdfast.spool.seek import File
from holdfast.spool.whole import Final, read_ack, read_final, remove, write_final


class Standing(msgspec.Struct, frozen=True, gc=False):
    """How a session stands, as its files say; nothing was changed to find out."""

    place: Place
    segments: tuple[Segment, ...]
    tail: Tail | None
    """Of the last file; None where there is none."""
    acked: int
    final: Final | None
    bytes_used: int
    quarantined_bytes: int

    @property
    def first(self) -> int:
        return self.segments[0].first if self.segments else self.acked + 1

    @property
    def last(self) -> int:
        return self.tail.last if self.tail is not None else self.acked

    @property
    def is_finished(self) -> bool:
        """Closed as final, or its last word is that the channel ended. A BLOCK_FENCE alone does not finish it."""
        if self.final is not None:
            return True
        if self.tail is None or self.tail.last_seen is None or self.tail.verdict is not Verdict.WHOLE:
            return False
        return self.tail.last_seen.payload_type == CHANNEL_TERMINATED

    @property
    def may_go(self) -> bool:
        """SP-RET-001: finished, and the receiver has the last record. What a deletion left over may go, too."""
        if not self.segments:
            return self.final is not None
        last = max(self.last, self.final.sequence if self.final else 0)
        is_sound = self.tail is not None and self.tail.verdict is not Verdict.DAMAGED
        return self.is_finished and self.acked >= last and is_sound


def standing(disk: Disk, place: Place, window: int = WINDOW) -> Standing:
    """Look at one session."""
    acked = read_ack(disk, place)
    segments = tuple(segments_of(disk, place))
    tail = _tail(disk, place, segments[-1], acked, window) if segments else None
    own = [entry for entry in disk.files(place.folder) if _is_of(entry, place.session)]
    quarantined = sum(entry.size for entry in own if entry.name.endswith(QUARANTINE))
    return Standing(
        place, segments, tail, acked, read_final(disk, place), sum(entry.size for entry in own), quarantined
    )


def _tail(disk: Disk, place: Place, segment: Segment, acked: int, window: int) -> Tail:
    handle = disk.open(segment.path)
    try:
        first = None if segment.is_plain else segment.first
        return examine(File(disk, handle, place.channel, place.session), first=first, acked=acked, window=window)
    finally:
        disk.close(handle)


def _is_of(entry: Entry, session: str) -> bool:
    named = parse(entry.name)
    return named is not None and named.session == session


def sessions(disk: Disk, folder: Path) -> list[str]:
    """The sessions that have records or what is left of them, by name."""
    kinds = {SPOOL, FINAL}
    named = (parse(entry.name) for entry in disk.files(folder))
    return sorted({one.session for one in named if one is not None and one.kind in kinds and not one.is_temp})


def undelivered(root: Path | str, channel: str, disk: Disk | None = None) -> list[Standing]:
    """The sessions of a channel that the receiver does not wholly have, oldest first, for replay (SP-CRASH-001).

    Their last record's time orders them: one that is still written to comes last. Nothing is locked or changed.
    """
    disk, folder = disk or RealDisk(), Path(root) / channel
    try:
        names = sessions(disk, folder)
    except FileNotFoundError:
        return []
    found = [_standing_still(disk, Place(folder, channel, session)) for session in names]
    waiting = [one for one in found if one is not None and one.last > one.acked and one.segments]
    return sorted(waiting, key=lambda one: (_last_utc(one), one.place.session))


def _standing_still(disk: Disk, place: Place) -> Standing | None:
    """None where it was deleted while we looked: then it was delivered, and says nothing about the others."""
    try:
        return standing(disk, place)
    except FileNotFoundError:
        return None


def _last_utc(found: Standing) -> str:
    return found.tail.last_seen.emitted_utc if found.tail is not None and found.tail.last_seen is not None else ""


def reclaim(disk: Disk, folder: Path, now_ms: int, *, but: str) -> int:
    """Delete the sessions that may go; how many. One that somebody has open is left alone."""
    gone = 0
    for session in sessions(disk, folder):
        place = Place(folder, folder.name, session)
        if session != but and _may_go_quickly(disk, place):
            lock = disk.lock(place.lock)
            if lock is None:
                continue
            try:
                found = standing(disk, place)
                if found.may_go:
                    delete(disk, found, now_ms)
                    gone += 1
            finally:
                disk.unlock(lock)
    return gone


def _may_go_quickly(disk: Disk, place: Place) -> bool:
    """What is not acked at all cannot go: no need to look at its records."""
    return read_final(disk, place) is not None or read_ack(disk, place) > 0


def delete(disk: Disk, found: Standing, now_ms: int) -> None:
    """Let go of a session whose last record the receiver has. Quarantined bytes stay: they are for people.

    Records first, oldest first, each for good before the next; then the ack, and the word `final` last: at no point
    does a crash leave something that looks like an unfinished session. A process that died here may have taken away
    names which a crash would still bring back: they go for good before anything else does.
    """
    place = found.place
    disk.sync_folder(place.folder)
    if found.final is None:
        write_final(disk, place, Final(found.last, CHANNEL_TERMINATED), now_ms)
    for segment in found.segments:
        remove(disk, segment.path)
        disk.sync_folder(place.folder)
    for path in (place.ack, place.released, place.reserve):
        remove(disk, path)
    disk.sync_folder(place.folder)
    remove(disk, place.lock)
    remove(disk, place.final)
    disk.sync_folder(place.folder)


def why_no_new_session(disk: Disk, folder: Path, policy: SpoolPolicy) -> Refused | None:
    """SP-RET-003: a channel at its cap starts no session until it is well below."""
    used = sum(entry.size for entry in disk.files(folder))
    cap = policy.channel_bytes_max
    is_low = used * PER_MILLE >= cap * policy.reopen_below_per_mille
    if used + policy.reserve_bytes <= cap and not (is_low and is_marked_full(disk, folder)):
        return None
    hint = "deliver and ack what is there, run `holdfast spool compact`, or raise spool.channel_bytes_max"
    says = f"the channel uses {used} of {cap} bytes, no new session is started"
    return Refused("SP-RET-003", says, hint, "SpoolFull")
