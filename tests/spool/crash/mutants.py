"""Seeded faults of the spool: each breaks one promise, and one law must see it."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A change that must not go unnoticed, and the law that notices it."""

    says: str
    file: str
    changes: tuple[tuple[str, str], ...]
    law: str
    seen_in: str
    """The setup and the history in which it shows."""
    also: tuple[str, str, str] | None = None
    """A change of another file that belongs to it."""


THERE = "what was spooled is there"
ACK_BACK = "an ack never goes back"
NO_DAMAGE = "a crash is no damage"
TORN = "a torn tail is quarantined"
TOLD = "a damaged middle is told and never passed over"
REPLAYS = "a sound spool replays"
KEPT = "nothing is let go before its ack"

MUTANTS = (
    Mutant(
        "fsync removed",
        "log.py",
        (("        if sync:\n", "        if False:\n"),),
        THERE,
        "plain: faults in o",
    ),
    Mutant(
        "directory sync removed after a segment is made",
        "log.py",
        (("                self.disk.sync_folder(path.parent)\n            except", "            except"),),
        THERE,
        "segments: faults in o",
    ),
    Mutant(
        "directory sync removed after the first file is made",
        "session.py",
        (("    log.disk.sync_folder(path.parent)\n", ""),),
        THERE,
        "plain: faults in o",
    ),
    Mutant(
        "temp not synced before its rename",
        "whole.py",
        (("        disk.sync(handle)\n", "        pass\n"),),
        ACK_BACK,
        "plain: crashes in oBH",
    ),
    Mutant(
        "directory not synced after a rename",
        "whole.py",
        (("    disk.rename(temp, path)\n    disk.sync_folder(path.parent)\n", "    disk.rename(temp, path)\n"),),
        ACK_BACK,
        "plain: crashes in oBH",
    ),
    Mutant(
        "a record is called spooled before its commit",
        "writer.py",
        (
            (
                "        self._log.append(data, last, sync=is_synced)\n",
                "        self.spooled.reach(last)\n        self._log.append(data, last, sync=is_synced)\n",
            ),
        ),
        THERE,
        "plain: crashes in oE",
    ),
    Mutant(
        "an ack is called stored before it is",
        "keeper.py",
        (
            (
                "            write_ack(self._log.disk, self._log.place, wanted, self._clock.wall_ms())\n"
                "            self.acked.reach(wanted)\n",
                "            self.acked.reach(wanted)\n"
                "            write_ack(self._log.disk, self._log.place, wanted, self._clock.wall_ms())\n",
            ),
        ),
        ACK_BACK,
        "plain: crashes in oBH",
    ),
    Mutant(
        "a failed fsync is tried again",
        "log.py",
        (
            (
                "        if sync:\n            self.disk.sync(tape.handle)\n",
                "        try:\n            self.disk.sync(tape.handle)\n"
                "        except OSError:\n            self.disk.sync(tape.handle)\n",
            ),
        ),
        THERE,
        "plain: faults in oE",
    ),
    Mutant(
        "what a dead process left is not made sure",
        "session.py",
        (("            recover.make_sure(", "            (lambda *_: None)("),),
        THERE,
        "plain: crashes in oE",
    ),
    Mutant(
        "the next sequence is not recovered",
        "spool.py",
        (("Outbox(encoder, policy, clock, spooled, ", "Outbox(encoder, policy, clock, min(spooled, found.acked), "),),
        "no number is used twice",
        "plain: crashes in oE",
    ),
    Mutant(
        "the cap is looked at after the number is given out",
        "outbox.py",
        (
            (
                "            if accepted > self.accept_until:\n",
                "            if accepted > self.accept_until:\n                self._next = sequence + 1\n",
            ),
        ),
        REPLAYS,
        "capped: crashes in oO",
    ),
    Mutant(
        "the cap is not looked at",
        "outbox.py",
        (("            if accepted > self.accept_until:\n", "            if False:\n"),),
        "the cap holds",
        "capped: crashes in oO",
    ),
    Mutant(
        "the reserve is not held",
        "room.py",
        (("        if self.has_reserve or others", "        if True or others"),),
        "the reserve is there",
        "plain: crashes in oE",
    ),
    Mutant(
        "a torn tail is merged with what comes next",
        "session.py",
        (
            ("        if tail.verdict is Verdict.TORN:\n", "        if False:\n"),
            ("return Tape(handle, segment, tail.end, ", "return Tape(handle, segment, tail.data_end, "),
        ),
        REPLAYS,
        "plain: crashes in oE",
    ),
    Mutant(
        "a torn tail is thrown away",
        "recover.py",
        (('    if raw.strip(b"\\0"):\n', "    if False:\n"),),
        TORN,
        "plain: crashes in oE",
    ),
    Mutant(
        "a torn tail is cut before its copy is safe",
        "recover.py",
        (
            (
                "    raw = disk.read(handle, tail.end, tail.data_end - tail.end)\n",
                "    raw = disk.read(handle, tail.end, tail.data_end - tail.end)\n    disk.cut(handle, tail.end)\n",
            ),
        ),
        TORN,
        "plain: crashes in oU",
    ),
    Mutant(
        "a damaged record in the middle is passed over",
        "reader.py",
        (("        if not self._is_released(following, until):\n", "        if False:\n"),),
        TOLD,
        "plain: damage in oBEBE",
    ),
    Mutant(
        "an old ack that comes late is stored",
        "keeper.py",
        (("        if wanted > self.acked.reached:\n", "        if wanted != self.acked.reached:\n"),),
        ACK_BACK,
        "plain: crashes in oBAL",
        also=("spool.py", "            if sequence > self.keeper.ack_wanted:\n", "            if sequence:\n"),
    ),
    Mutant(
        "compaction drops a record that is not acked",
        "keeper.py",
        (("keep_from=min(self.acked.reached + 1, ", "keep_from=min(self.acked.reached + 2, "),),
        KEPT,
        "plain: crashes in oBHC",
    ),
    Mutant(
        "a segment goes when its first record is acked",
        "keeper.py",
        (("view[1].first - 1 <= self.acked.reached", "view[0].first <= self.acked.reached"),),
        KEPT,
        "segments: crashes in oBH",
    ),
    Mutant(
        "compaction does not sync its copy",
        "keeper.py",
        (("                disk.sync(copy)\n", ""),),
        REPLAYS,
        "plain: crashes in oBHC",
    ),
    Mutant(
        "compaction forgets what was written meanwhile",
        "writer.py",
        (("            if tape.end > swap.copied:\n", "            if False:\n"),),
        THERE,
        "plain: crashes in oBHX",
    ),
    Mutant(
        "the folder is not synced when a compacted file takes its place",
        "writer.py",
        (("                disk.sync_folder(path.parent)\n            except", "            except"),),
        THERE,
        "plain: crashes in oBHCE",
    ),
    Mutant(
        "the final word is not written",
        "spool.py",
        (("        write_final(self._log.disk, ", "        (lambda *_: None)(self._log.disk, "),),
        "final stays final",
        "plain: crashes in oF",
    ),
    Mutant(
        "a record says that it is durable itself",
        "writer.py",
        (("marked(lines[0], self._durable)", "marked(lines[0], self._durable + len(lines))"),),
        NO_DAMAGE,
        "plain: crashes in oB",
    ),
    Mutant(
        "records are offered before they are spooled",
        "log.py",
        (
            (
                "        self.disk.write(tape.handle, tape.end, data)\n        if sync:\n",
                "        self.disk.write(tape.handle, tape.end, data)\n"
                "        self.view = View(self.view.segments, last, tape.end + len(data))\n        if sync:\n",
            ),
        ),
        THERE,
        "plain: faults in oE",
    ),
)
