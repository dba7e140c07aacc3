"""Seeded faults of the spool: each breaks one promise, and one invariant must detect it."""

from __future__ import annotations

from typing import NamedTuple

from tests.spool.crash import invariants
from tests.spool.crash.invariants import Invariant


class SpoolMutant(NamedTuple):
    """A change that must be detected, and the invariant that detects it."""

    says: str
    changes: tuple[tuple[str, str, str], ...]
    """File, a text that occurs once in it, and its replacement."""
    invariant: Invariant
    seen_in: str
    """The setup and the history in which it is detected."""


MUTANTS = (
    SpoolMutant(
        "fsync removed",
        (("files/segment_log.py", "        if sync:\n", "        if False:\n"),),
        invariants.THERE,
        "plain: crashes in oE",
    ),
    SpoolMutant(
        "directory sync removed after a segment is made",
        (
            (
                "files/segment_log.py",
                "            self.disk.sync_folder(path.parent)\n        except",
                "        except",
            ),
        ),
        invariants.THERE,
        "segments: faults in o",
    ),
    SpoolMutant(
        "a file that failed is removed before the next one has its name",
        (("files/segment_log.py", "temp_path(path) if is_only else path", "path"),),
        invariants.NO_DAMAGE,
        "segments: crashes in oXTA",
    ),
    SpoolMutant(
        "directory sync removed after the first file is made",
        (("session.py", "    log.disk.sync_folder(path.parent)\n", ""),),
        invariants.THERE,
        "plain: faults in o",
    ),
    SpoolMutant(
        "temp not synced before its rename",
        (("files/atomic_files.py", "        disk.sync(handle)\n", "        pass\n"),),
        invariants.NO_DAMAGE,
        "plain: crashes in oBHL",
    ),
    SpoolMutant(
        "directory not synced after a rename",
        (
            (
                "files/atomic_files.py",
                "    disk.rename(temp, path)\n    disk.sync_folder(path.parent)\n",
                "    disk.rename(temp, path)\n",
            ),
        ),
        invariants.ACK_MONOTONIC,
        "plain: crashes in oBH",
    ),
    SpoolMutant(
        "a record is called spooled before its commit",
        (
            (
                "writer.py",
                "            self._log.write(piece)\n",
                "            self.spooled.advance(self._log.view.spooled + lines.count)\n"
                "            self._log.write(piece)\n",
            ),
        ),
        invariants.THERE,
        "plain: crashes in oE",
    ),
    SpoolMutant(
        "an ack is called stored before it is",
        (
            (
                "maintainer.py",
                "            write_ack(self._log.disk, self._marker_paths, received, self._clock.wall_ms())\n"
                "            self.ack_stored.advance(received)\n",
                "            self.ack_stored.advance(received)\n"
                "            write_ack(self._log.disk, self._marker_paths, received, self._clock.wall_ms())\n",
            ),
        ),
        invariants.ACK_MONOTONIC,
        "plain: crashes in oBH",
    ),
    SpoolMutant(
        "a failed fsync is tried again",
        (
            (
                "files/segment_log.py",
                "        if sync:\n            self.disk.sync(active.handle)\n",
                "        try:\n"
                "            self.disk.sync(active.handle)\n"
                "        except OSError:\n"
                "            self.disk.sync(active.handle)\n",
            ),
        ),
        invariants.THERE,
        "segments: faults in oE",
    ),
    SpoolMutant(
        "what a dead process left is not made sure",
        (("session.py", "        recover.rewrite_unsynced(", "        (lambda *_: None)("),),
        invariants.THERE,
        "plain: crashes in oE",
    ),
    SpoolMutant(
        "the next sequence is not recovered",
        (
            (
                "spool.py",
                "Outbox(encoder, policy, clock, spooled, ",
                "Outbox(encoder, policy, clock, min(spooled, status.acked), ",
            ),
        ),
        invariants.ONCE,
        "plain: crashes in oE",
    ),
    SpoolMutant(
        "the cap is looked at after the number is given out",
        (
            (
                "outbox.py",
                "            if accepted > self.accept_bytes_until:\n",
                "            if accepted > self.accept_bytes_until:\n"
                "                self._next, queue.next = sequence + 1, queue.next + 1\n",
            ),
        ),
        invariants.REPLAYS,
        "capped: crashes in oOE",
    ),
    SpoolMutant(
        "the cap is not looked at",
        (("outbox.py", "            if accepted > self.accept_bytes_until:\n", "            if False:\n"),),
        invariants.CAP,
        "capped: crashes in oOE",
    ),
    SpoolMutant(
        "the reserve is not held",
        (("channel_quota.py", "        if self.has_reserve or others", "        if True or others"),),
        invariants.RESERVED,
        "plain: crashes in oE",
    ),
    SpoolMutant(
        "a torn tail is merged with what comes next",
        (
            ("session.py", "        if tail.verdict is FileVerdict.TORN:\n", "        if False:\n"),
            (
                "session.py",
                "return ActiveSegment(handle, segment, tail.end, ",
                "return ActiveSegment(handle, segment, tail.data_end, ",
            ),
        ),
        invariants.REPLAYS,
        "plain: crashes in oE",
    ),
    SpoolMutant(
        "a torn tail is thrown away",
        (("files/recover.py", '    if raw.strip(b"\\0"):\n', "    if False:\n"),),
        invariants.TORN,
        "plain: crashes in oE",
    ),
    SpoolMutant(
        "a torn tail is cut before its copy is safe",
        (
            (
                "files/recover.py",
                "    raw = disk.read(handle, tail.end, tail.data_end - tail.end)\n",
                "    raw = disk.read(handle, tail.end, tail.data_end - tail.end)\n"
                "    disk.truncate(handle, tail.end)\n",
            ),
            ("files/recover.py", "    check_unchanged(disk, handle, path, tail.size)\n", ""),
        ),
        invariants.TORN,
        "plain: crashes in oU",
    ),
    SpoolMutant(
        "a damaged record in the middle is passed over",
        (("reader.py", "        if not self._is_released(following, until):\n", "        if False:\n"),),
        invariants.DAMAGE_REPORTED,
        "plain: damage in oBEBE",
    ),
    SpoolMutant(
        "an old ack that comes late is stored",
        (
            (
                "maintainer.py",
                "        if received > self.ack_stored.reached and",
                "        if received != self.ack_stored.reached and",
            ),
            ("spool.py", "            if sequence > self.maintainer.ack_received:\n", "            if sequence:\n"),
        ),
        invariants.ACK_MONOTONIC,
        "plain: crashes in oBAL",
    ),
    SpoolMutant(
        "compaction drops a record that is not acked",
        (
            (
                "maintainer.py",
                "keep_from=min(self._droppable + 1, ",
                "keep_from=min(self._droppable + 2, ",
            ),
        ),
        invariants.NO_DAMAGE,
        "plain: crashes in oBHC",
    ),
    SpoolMutant(
        "a segment goes when its first record is acked",
        (
            (
                "maintainer.py",
                "view[1].first - 1 <= self._droppable",
                "view[0].first <= self._droppable",
            ),
        ),
        invariants.KEPT,
        "segments: crashes in oBH",
    ),
    SpoolMutant(
        "compaction does not sync its copy",
        (("maintainer.py", "                disk.sync(copy)\n", ""),),
        invariants.NO_DAMAGE,
        "plain: crashes in oBHC",
    ),
    SpoolMutant(
        "compaction forgets what was written meanwhile",
        (("writer.py", "            if active.data_end > copy.copied:\n", "            if False:\n"),),
        invariants.THERE,
        "plain: crashes in oBHX",
    ),
    SpoolMutant(
        "the folder is not synced when a compacted file takes its place",
        (("writer.py", "                disk.sync_folder(path.parent)\n            except", "            except"),),
        invariants.THERE,
        "plain: crashes in oBHCE",
    ),
    SpoolMutant(
        "the final word is not written",
        (
            (
                "spool.py",
                "        write_final(\n            self._log.disk, ",
                "        (lambda *_: None)(\n            self._log.disk, ",
            ),
        ),
        invariants.FINAL_STAYS,
        "plain: crashes in oF",
    ),
    SpoolMutant(
        "a record says that it is durable itself",
        (
            (
                "record_queue.py",
                "durable_field(self._durable)",
                "durable_field(self._durable + len(bodies))",
            ),
        ),
        invariants.NO_DAMAGE,
        "plain: crashes in oB",
    ),
    SpoolMutant(
        "records are offered before they are spooled",
        (
            (
                "files/segment_log.py",
                "        if sync:\n",
                "        self.view = ReadView(self.view.segments, last, active.data_end)\n        if sync:\n",
            ),
        ),
        invariants.THERE,
        "segments: faults in oE",
    ),
    SpoolMutant(
        "a session's records go while it could turn out not to be recorded as delivered",
        (
            (
                "channel.py",
                "    paths = status.paths\n    disk.sync_folder(paths.folder)\n",
                "    paths = status.paths\n",
            ),
        ),
        invariants.NEVER_HALF_GONE,
        "plain: crashes in oEFAN",
    ),
    SpoolMutant(
        "a session is deleted before it is recorded as delivered",
        (
            (
                "channel.py",
                "    if status.final is None or not status.final.is_delivered:\n",
                "    if status.final is None:\n",
            ),
        ),
        invariants.NEVER_HALF_GONE,
        "plain: crashes in oEFAN",
    ),
    SpoolMutant(
        "the word final goes first when a session is deleted",
        (
            (
                "channel.py",
                "    for segment in status.segments:\n        remove_file(",
                "    remove_file(disk, paths.final)\n    for segment in status.segments:\n        remove_file(",
            ),
        ),
        invariants.NEVER_HALF_GONE,
        "segments: crashes in oEFAN",
    ),
    SpoolMutant(
        "a session that was not delivered is deleted with the finished ones",
        (
            (
                "channel.py",
                "        return self.is_finished and self.acked >= self.highest\n",
                "        return self.is_finished and self.highest > 0\n",
            ),
            (
                "channel.py",
                "    return read_final(disk, paths) is not None or read_ack(disk, paths) > 0\n",
                "    return True\n",
            ),
        ),
        invariants.KEPT,
        "plain: crashes in oEFN",
    ),
    SpoolMutant(
        "the folder is not synced when a session is opened",
        (("session.py", "    disk.sync_folder(paths.folder)\n    if not status", "    if not status"),),
        invariants.THERE,
        "segments: crashes in o",
    ),
    SpoolMutant(
        "the channel's folder is not made durable",
        (("session.py", "        disk.sync_folder(folder.parent)\n", "        pass\n"),),
        invariants.THERE,
        "plain: crashes in oE",
    ),
    SpoolMutant(
        "what a failed sync has left is synced, not written anew",
        (("files/recover.py", "    if tail.last > tail.durable_until:\n", "    if False:\n"),),
        invariants.THERE,
        "segments: faults in oE",
    ),
    SpoolMutant(
        "the oldest segments go without a sync between them",
        (
            (
                "files/segment_log.py",
                "        remove_file(self.disk, segment.path)\n        self.disk.sync_folder(self.paths.folder)\n",
                "        remove_file(self.disk, segment.path)\n",
            ),
        ),
        invariants.REPLAYS,
        "segments: crashes in oBBA",
    ),
    SpoolMutant(
        "a copy that was half made is left",
        (("session.py", "            remove_file(disk, paths.folder / entry.name)\n", "            pass\n"),),
        invariants.NO_LEFTOVERS,
        "plain: crashes in oBHC",
    ),
    SpoolMutant(
        "compaction drops the last record, too",
        (
            (
                "maintainer.py",
                "keep_from=min(self._droppable + 1, self._log.view.spooled)",
                "keep_from=self._droppable + 1",
            ),
        ),
        invariants.NO_DAMAGE,
        "plain: crashes in oBAC",
    ),
    SpoolMutant(
        "what came during compaction is not synced",
        (("writer.py", "                disk.sync(copy.handle)\n", "                pass\n"),),
        invariants.THERE,
        "plain: crashes in oBHX",
    ),
    SpoolMutant(
        "the next number may be one that was acked",
        (
            (
                "session.py",
                "    last = max(status.markers.highest, last_sequence(status.tail))\n",
                "    last = last_sequence(status.tail)\n",
            ),
            (
                "files/losses.py",
                "    elif (last := tail.last if tail is not None else 0) < markers.highest and not found:\n",
                "    elif False:\n",
            ),
        ),
        invariants.ONCE,
        "plain: damage in oBA",
    ),
    SpoolMutant(
        "a torn tail is set aside again beside its first copy",
        (("files/recover.py", "        remove_file(disk, copy)\n", ""),),
        invariants.CAP,
        "capped: crashes in oEEEBB",
    ),
)
