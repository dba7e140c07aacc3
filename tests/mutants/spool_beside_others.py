"""Seeded faults in how a spool lives beside other programs, and in what it knows of its losses."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

LOSSES, OWNERSHIP, QUEUE = "spool/files/losses.py", "spool/files/ownership.py", "spool/record_queue.py"
SHIPPER = "shipping/background_shipper.py"
LOSS_TESTS, OWNER_TESTS = "tests/spool/test_spool_losses.py", "tests/spool/test_spool_ownership.py"
SHIPPER_TESTS, ROOT_TESTS = "tests/shipping/test_background_shipper.py", "tests/shipping/test_root_shipper.py"

SPOOL_BESIDE_OTHERS: Final = [
    Mutant(
        "repair takes the file of a program that is writing it",
        "cli/spool/session.py",
        "    if owner_of(RealDisk(), paths) is SessionOwner.FOREIGN:\n",
        "    if owner_of(RealDisk(), paths) is None:\n",
        f"{OWNER_TESTS} -k no_command_of_ours",
    ),
    Mutant(
        "a file that has grown since it was adopted stays ours",
        OWNERSHIP,
        "    if size <= adoption.size:\n",
        "    if size:\n",
        f"{OWNER_TESTS} -k writes_on_after",
    ),
    Mutant(
        "a session is adopted while its program has it open",
        "spool/foreign/adoption.py",
        "    if writers := writers_of(paths.plain):\n",
        "    if (writers := writers_of(paths.plain)) and not writers:\n",
        f"{OWNER_TESTS} -k has_it_open",
    ),
    Mutant(
        "a missing first segment is silent",
        LOSSES,
        "    if not segments or markers.unreadable or segments[0].first <= markers.acked + 1:\n",
        "    if segments or not segments:\n",
        LOSS_TESTS,
    ),
    Mutant(
        "an end below the final mark is silent",
        LOSSES,
        "    elif (last := tail.last if tail is not None else 0) < markers.highest and not found:\n",
        "    elif (last := tail.last if tail is not None else 0) < markers.acked and not found:\n",
        LOSS_TESTS,
    ),
    Mutant(
        "a link in the place of a file is followed in silence",
        LOSSES,
        "        if entry.is_regular or parsed is None",
        "        if entry.is_regular or parsed is not None or parsed is None",
        LOSS_TESTS,
    ),
    Mutant(
        "close returns before what was emitted is delivered",
        SHIPPER,
        "            self._spool.writer.spooled.wait(emitted, timeout_s)\n",
        "            emitted = self._spool.spooled_sequence\n",
        f"{SHIPPER_TESTS} -k close_waits",
    ),
    Mutant(
        "close does not tell of older sessions that it has not looked for",
        SHIPPER,
        "                older = dict.fromkeys(self._older_sessions())\n",
        "                older = {}\n",
        f"{SHIPPER_TESTS} -k no_time",
    ),
    Mutant(
        "a channel that the receiver forbids is tried until the time is up",
        "shipping/root_shipper.py",
        ", gives_up_on=OPERATOR_REFUSALS)",
        ")",
        f"{ROOT_TESTS} -k providers_key",
    ),
    Mutant(
        "an orphan with another uuid than the node's is called delivered",
        "shipping/orphan_comparison.py",
        "        await self._compare(hello)\n",
        "",
        f"{ROOT_TESTS} -k another_uuid",
    ),
    Mutant(
        "the second piece of a large commit begins with its first record again",
        QUEUE,
        "        self.next += len(bodies)\n",
        "        self.next = max(self.next, len(bodies))\n",
        "tests/spool/test_spool_threads.py -k any_length",
    ),
    Mutant(
        "a commit that failed is written again without its first pieces",
        QUEUE,
        "        yield from self._pieces\n",
        "        yield from self._pieces[1:]\n",
        "tests/spool/test_spool_faults.py -k fails_in_its_middle",
    ),
]
