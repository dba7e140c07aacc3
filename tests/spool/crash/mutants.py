"""Seeded faults of the spool: each breaks one promise, and one law must see it."""

from __future__ import annotations

from typing import NamedTuple

from tests.spool.crash import laws
from tests.spool.crash.laws import Law


class Mutant(NamedTuple):
    """A change that must not go unnoticed, and the law that notices it."""

    says: str
    changes: tuple[tuple[str, str, str], ...]
    """File, what stands there once, and what stands there instead."""
    law: Law
    seen_in: str
    """The setup and the history in which it shows."""


MUTANTS = (
    Mutant(
        "fsync removed",
        (("log.py", "        if sync:\n", "        if False:\n"),),
        laws.THERE,
        "plain: crashes in oE",
    ),
    Mutant(
        "directory sync removed after a segment is made",
        (("log.py", "                self.disk.sync_folder(path.parent)\n            except", "            except"),),
        laws.THERE,
        "segments: faults in o",
    ),
    Mutant(
        "directory sync removed after the first file is made",
        (("session.py", "    log.disk.sync_folder(path.parent)\n", ""),),
        laws.THERE,
        "plain: faults in o",
    ),
    Mutant(
        "temp not synced before its rename",
        (("whole.py", "        disk.sync(handle)\n", "        pass\n"),),
        laws.ACK_BACK,
        "plain: crashes in oBHL",
    ),
    Mutant(
        "directory not synced after a rename",
        (
            (
                "whole.py",
                "    disk.rename(temp, path)\n    disk.sync_folder(path.parent)\n",
                "    disk.rename(temp, path)\n",
            ),
        ),
        laws.ACK_BACK,
        "plain: crashes in oBH",
    ),
    Mutant(
        "a record is called spooled before its commit",
        (
            (
                "writer.py",
                "        self._log.append(data, last, sync=is_synced)\n",
                "        self.spooled.reach(last)\n        self._log.append(data, last, sync=is_synced)\n",
            ),
        ),
        laws.THERE,
        "plain: crashes in oE",
    ),
    Mutant(
        "an ack is called stored before it is",
        (
            (
                "keeper.py",
                "            write_ack(self._log.disk, self._log.place, wanted, self._clock.wall_ms())\n"
                "            self.acked.reach(wanted)\n",
                "            self.acked.reach(wanted)\n"
                "            write_ack(self._log.disk, self._log.place, wanted, self._clock.wall_ms())\n",
            ),
        ),
        laws.ACK_BACK,
        "plain: crashes in oBH",
    ),
    Mutant(
        "a failed fsync is tried again",
        (
            (
                "log.py",
                "        if sync:\n            self.disk.sync(tape.handle)\n",
                "        try:\n"
                "            self.disk.sync(tape.handle)\n"
                "        except OSError:\n"
                "            self.disk.sync(tape.handle)\n",
            ),
        ),
        laws.THERE,
        "segments: faults in oE",
    ),
    Mutant(
        "what a dead process left is not made sure",
        (("session.py", "            recover.make_sure(", "            (lambda *_: None)("),),
        laws.THERE,
        "plain: crashes in oE",
    ),
    Mutant(
        "the next sequence is not recovered",
        (
            (
                "spool.py",
                "Outbox(encoder, policy, clock, spooled, ",
                "Outbox(encoder, policy, clock, min(spooled, found.acked), ",
            ),
        ),
        laws.ONCE,
        "plain: crashes in oE",
    ),
    Mutant(
        "the cap is looked at after the number is given out",
        (
            (
                "outbox.py",
                "            if accepted > self.accept_until:\n",
                "            if accepted > self.accept_until:\n                self._next = sequence + 1\n",
            ),
        ),
        laws.REPLAYS,
        "capped: crashes in oOE",
    ),
    Mutant(
        "the cap is not looked at",
        (("outbox.py", "            if accepted > self.accept_until:\n", "            if False:\n"),),
        laws.CAP,
        "capped: crashes in oOE",
    ),
    Mutant(
        "the reserve is not held",
        (("room.py", "        if self.has_reserve or others", "        if True or others"),),
        laws.RESERVED,
        "plain: crashes in oE",
    ),
    Mutant(
        "a torn tail is merged with what comes next",
        (
            ("session.py", "        if tail.verdict is Verdict.TORN:\n", "        if False:\n"),
            ("session.py", "return Tape(handle, segment, tail.end, ", "return Tape(handle, segment, tail.data_end, "),
        ),
        laws.REPLAYS,
        "plain: crashes in oE",
    ),
    Mutant(
        "a torn tail is thrown away",
        (("recover.py", '    if raw.strip(b"\\0"):\n', "    if False:\n"),),
        laws.TORN,
        "plain: crashes in oE",
    ),
    Mutant(
        "a torn tail is cut before its copy is safe",
        (
            (
                "recover.py",
                "    raw = disk.read(handle, tail.end, tail.data_end - tail.end)\n",
                "    raw = disk.read(handle, tail.end, tail.data_end - tail.end)\n    disk.cut(handle, tail.end)\n",
            ),
        ),
        laws.TORN,
        "plain: crashes in oU",
    ),
    Mutant(
        "a damaged record in the middle is passed over",
        (("reader.py", "        if not self._is_released(following, until):\n", "        if False:\n"),),
        laws.LOUD,
        "plain: damage in oBEBE",
    ),
    Mutant(
        "an old ack that comes late is stored",
        (
            ("keeper.py", "        if wanted > self.acked.reached:\n", "        if wanted != self.acked.reached:\n"),
            ("spool.py", "            if sequence > self.keeper.ack_wanted:\n", "            if sequence:\n"),
        ),
        laws.ACK_BACK,
        "plain: crashes in oBAL",
    ),
    Mutant(
        "compaction drops a record that is not acked",
        (("keeper.py", "keep_from=min(self.acked.reached + 1, ", "keep_from=min(self.acked.reached + 2, "),),
        laws.KEPT,
        "plain: crashes in oBHC",
    ),
    Mutant(
        "a segment goes when its first record is acked",
        (("keeper.py", "view[1].first - 1 <= self.acked.reached", "view[0].first <= self.acked.reached"),),
        laws.KEPT,
        "segments: crashes in oBH",
    ),
    Mutant(
        "compaction does not sync its copy",
        (("keeper.py", "                disk.sync(copy)\n", ""),),
        laws.REPLAYS,
        "plain: crashes in oBHC",
    ),
    Mutant(
        "compaction forgets what was written meanwhile",
        (("writer.py", "            if tape.end > swap.copied:\n", "            if False:\n"),),
        laws.THERE,
        "plain: crashes in oBHX",
    ),
    Mutant(
        "the folder is not synced when a compacted file takes its place",
        (("writer.py", "                disk.sync_folder(path.parent)\n            except", "            except"),),
        laws.THERE,
        "plain: crashes in oBHCE",
    ),
    Mutant(
        "the final word is not written",
        (("spool.py", "        write_final(self._log.disk, ", "        (lambda *_: None)(self._log.disk, "),),
        laws.FINAL_STAYS,
        "plain: crashes in oF",
    ),
    Mutant(
        "a record says that it is durable itself",
        (("writer.py", "marked(lines[0], self._durable)", "marked(lines[0], self._durable + len(lines))"),),
        laws.NO_DAMAGE,
        "plain: crashes in oB",
    ),
    Mutant(
        "records are offered before they are spooled",
        (
            (
                "log.py",
                "        self.disk.write(tape.handle, tape.end, data)\n        if sync:\n",
                "        self.disk.write(tape.handle, tape.end, data)\n"
                "        self.view = View(self.view.segments, last, tape.end + len(data))\n"
                "        if sync:\n",
            ),
        ),
        laws.THERE,
        "segments: faults in oE",
    ),
    Mutant(
        "a full channel opens again without its reserve",
        (
            (
                "keeper.py",
                "        if not self._room.has_reserve:\n            return ",
                "        if False:\n            return ",
            ),
        ),
        laws.RESERVED,
        "capped: crashes in oOAF",
    ),
    Mutant(
        "a session's ack goes while its records could come back",
        (("channel.py", "    place = found.place\n    disk.sync_folder(place.folder)\n", "    place = found.place\n"),),
        laws.NEVER_HALF_GONE,
        "plain: crashes in oEFAN",
    ),
    Mutant(
        "the word final goes first when a session is deleted",
        (
            (
                "channel.py",
                "    for segment in found.segments:\n        remove(",
                "    remove(disk, place.final)\n    for segment in found.segments:\n        remove(",
            ),
        ),
        laws.NEVER_HALF_GONE,
        "segments: crashes in oEFAN",
    ),
    Mutant(
        "a session that was not delivered is deleted with the finished ones",
        (
            (
                "channel.py",
                "        return self.is_finished and self.acked >= last and is_sound\n",
                "        return self.is_finished and last > 0 and is_sound\n",
            ),
            (
                "channel.py",
                "    return read_final(disk, place) is not None or read_ack(disk, place) > 0\n",
                "    return True\n",
            ),
        ),
        laws.KEPT,
        "plain: crashes in oEFN",
    ),
    Mutant(
        "the folder is not synced when a session is opened",
        (("session.py", "    disk.sync_folder(place.folder)\n    if not found", "    if not found"),),
        laws.THERE,
        "segments: crashes in o",
    ),
    Mutant(
        "the channel's folder is not made durable",
        (("session.py", "        disk.sync_folder(folder.parent)\n", "        pass\n"),),
        laws.THERE,
        "plain: crashes in oE",
    ),
    Mutant(
        "what a failed sync has left is synced, not written anew",
        (("recover.py", "    if tail.last > tail.mark:\n", "    if False:\n"),),
        laws.THERE,
        "segments: faults in oE",
    ),
    Mutant(
        "the oldest segments go without a sync between them",
        (
            (
                "log.py",
                "        remove(self.disk, segment.path)\n        self.disk.sync_folder(self.place.folder)\n",
                "        remove(self.disk, segment.path)\n",
            ),
        ),
        laws.REPLAYS,
        "segments: crashes in oBBA",
    ),
    Mutant(
        "a copy that was half made is left",
        (("session.py", "            remove(disk, place.folder / entry.name)\n", "            pass\n"),),
        laws.UNDONE,
        "plain: crashes in oBHC",
    ),
    Mutant(
        "compaction drops the last record, too",
        (
            (
                "keeper.py",
                "keep_from=min(self.acked.reached + 1, self._log.view.spooled)",
                "keep_from=self.acked.reached + 1",
            ),
        ),
        laws.REPLAYS,
        "plain: crashes in oBAC",
    ),
    Mutant(
        "what came during compaction is not synced",
        (("writer.py", "                disk.sync(swap.handle)\n", "                pass\n"),),
        laws.THERE,
        "plain: crashes in oBHX",
    ),
    Mutant(
        "the next number may be one that was acked",
        (
            (
                "session.py",
                "    last = max(found.acked, _last_kept(found.tail))\n",
                "    last = _last_kept(found.tail)\n",
            ),
        ),
        laws.ONCE,
        "plain: damage in oBA",
    ),
    Mutant(
        "a torn tail is set aside again beside its first copy",
        (("recover.py", "        remove(disk, path)\n", ""),),
        laws.CAP,
        "capped: crashes in oEEEBB",
    ),
)
