"""Seeded faults in retention and availability: bytes let go too early, proofs believed too easily."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

MAY, LET_GO, DEMOTE = "core/retention/decide.py", "core/retention/apply.py", "duties/demote.py"
PROOFS, COMMIT = "core/da/proofs.py", "core/da/commit.py"
STRAYS, OUTPUTS = "tests/core/test_strays.py", "tests/doors/test_provider_outputs.py"
SWEPT = "tests/duties/test_strays_swept.py"
TESTS, FAULTS, CORE = (
    "tests/duties/test_collector.py",
    "tests/duties/test_collector_faults.py",
    "tests/core/test_retention.py",
)
DA = "tests/core/test_da.py"

RETENTION: Final = [
    Mutant(
        "what is not final is let go",
        MAY,
        "    return Height(max(0, min(old, finalized(state))))\n",
        "    return Height(max(0, old))\n",
        f"{TESTS} -k never_a_candidate",
    ),
    Mutant(
        "hot bytes go though the disk does not hold them",
        DEMOTE,
        "        left = await self._not_held(rows, report)\n        going = [",
        "        left: dict[EventNo, str] = {}\n        going = [",
        f"{TESTS} -k nobody_else_holds",
    ),
    Mutant(
        "rows are deleted before the event is durable",
        DEMOTE,
        "        if report.is_dry or await self._did(DropHot(lot, *told, is_swept=not going), report):\n",
        "        await self._let_go(sorted((row.batch, row.payload) for row in going))\n"
        "        if report.is_dry or await self._did(DropHot(lot, *told, is_swept=not going), report):\n",
        f"{FAULTS} -k only_after_the_event",
    ),
    Mutant(
        "what a dead owner decided is not finished",
        "duties/collector.py",
        "            await self._demoter.sweep_hot(report)\n            await self._demoter.sweep_warm(report)\n",
        "            pass\n",
        f"{FAULTS} -k killed_at_any_step",
    ),
    Mutant(
        "shared bytes are deleted",
        DEMOTE,
        "        needed = {row.result_digest for row in rows if row.event > until or row.event in staying}\n",
        "        needed = set[Digest]()\n",
        f"{TESTS} -k shared_bytes",
    ),
    Mutant(
        "bytes that were accepted a moment ago are deleted",
        MAY,
        "        if digest not in needed and recent.get(digest, EventNo(0)) <= lot.as_of\n",
        "        if digest not in needed\n",
        f"{CORE} -k after_the_rows_were_read",
    ),
    Mutant(
        "bytes that wait for a verdict are deleted",
        MAY,
        "    left, going, again = _without_handed_in(state, command)\n",
        "    left, going, again = command.lot.left, command.held, command.again\n",
        f"{TESTS} -k being_handed_in",
    ),
    Mutant(
        "a completion relies on bytes that are about to go",
        "core/law.py",
        "    said = may_let_go.why_not_hold(state, command) or may_prove.submit(state, command, now_ms)\n",
        "    said = may_prove.submit(state, command, now_ms)\n",
        f"{TESTS} -k about_to_be_deleted",
    ),
    Mutant(
        "what is not archived is deleted",
        DEMOTE,
        "            elif is_archived or may_lose:\n",
        "            elif True:\n",
        f"{TESTS} -k until_the_archive_has_them",
    ),
    Mutant(
        "the leaf goes with the record",
        LET_GO,
        '        state.touched["tombstone"][stone.event] = stone\n',
        '        state.touched["tombstone"][stone.event] = stone\n        state.touched["leaf"][stone.leaf] = None\n',
        f"{TESTS} -k leaf_stays",
    ),
    Mutant(
        "a row that was deleted is still served while it is on its way",
        "engine/read.py",
        "    return _record(kind, row) if row and not is_gone(row) else None\n",
        "    row = await source.tables.get(table, key) if row and is_gone(row) else row\n"
        "    return _record(kind, row) if row else None\n",
        "tests/engine/test_project.py -k deleted_is_gone",
    ),
    Mutant(
        "strays that are handed in are deleted",
        MAY,
        " = _handed_in(state) | _in_memory(state) | state.condemned.keys(), ",
        " = _in_memory(state) | state.condemned.keys(), ",
        f"{STRAYS} -k came_to_need",
    ),
    Mutant(
        "what was accepted and is final since the rows were read is a stray",
        MAY,
        "if digest not in needed and recent.get(digest, NO_RESULT) <= as_of\n",
        "if digest not in needed\n",
        f"{STRAYS} -k came_to_need",
    ),
    Mutant(
        "a stray that was spared is left behind for a result that is none",
        MAY,
        " if state.condemned.get(digest, NO_RESULT) != NO_RESULT)\n",
        ")\n",
        f"{STRAYS} -k was_spared",
    ),
    Mutant(
        "files of results are strays",
        "duties/strays.py",
        "        return [each for each in aged if each[0] not in needed]\n",
        "        return list(aged)\n",
        f"{SWEPT} -k left_behind",
    ),
    Mutant(
        "young files are strays",
        "adapters/aged.py",
        " and seen.st_mtime_ns // 1_000_000 <= before_ms:\n",
        ":\n",
        f"{SWEPT} -k real_folder",
    ),
    Mutant(
        "who asks for an old file does not make it young",
        "adapters/warm.py",
        "                os.utime(place_of(self._path, digest))",
        "                pass",
        "tests/adapters/test_warm_aged.py -k young_again",
    ),
    Mutant(
        "a round does not see what lies behind the end of a step",
        "adapters/aged.py",
        "                return found, stands_at(digest)\n",
        "                return found, (int(prefix, 16) + 1) << 32\n",
        "tests/adapters/test_warm_aged.py -k every_file_once",
    ),
    Mutant(
        "a lease may send any number of outputs",
        "doors/grpc/taken.py",
        "        if digest not in digests and len(digests) >= OUTPUTS_MAX:\n",
        "        if False:\n",
        f"{OUTPUTS} -k few_outputs",
    ),
    Mutant(
        "bytes that are about to go count as held",
        "doors/grpc/outputs.py",
        "    if digest in at.engine.state.condemned:\n",
        "    if False:\n",
        f"{OUTPUTS} -k being_let_go",
    ),
    Mutant(
        "a namespace's proof need not be complete",
        PROOFS,
        "    return opened.gives(root, total) and opened.is_all_of(namespace)\n",
        "    return opened.gives(root, total)\n",
        f"{DA} -k left_out",
    ),
    Mutant(
        "nodes of a proof may be left over",
        PROOFS,
        "        return self._over(0, total) == root and self._used == len(self._nodes)\n",
        "        return self._over(0, total) == root\n",
        f"{DA} -k altered_proof",
    ),
    Mutant(
        "a sample's length is not bound",
        COMMIT,
        "        return H(COMMITMENT_TAG, self.namespace, self.root, SHARE_BYTES, self.length)\n",
        "        return H(COMMITMENT_TAG, self.namespace, self.root, SHARE_BYTES, self.total)\n",
        f"{DA} -k length_counts",
    ),
]
