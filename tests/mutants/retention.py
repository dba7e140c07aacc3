"""Seeded faults in retention and data availability: bytes deleted too early, invalid proofs accepted."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

DECIDE, APPLY, DEMOTER = "core/retention/decide.py", "core/retention/apply.py", "workers/retention/tier_demoter.py"
PROOFS, COMMITMENT = "lightclient/da/proofs.py", "lightclient/da/commitment.py"
ORPHAN_TESTS, OUTPUT_TESTS = "tests/core/retention/test_orphans.py", "tests/api/grpc/test_output_upload.py"
SWEEPER_TESTS = "tests/workers/retention/test_orphan_sweeper.py"
COLLECTOR_TESTS, COLLECTOR_FAULTS, CORE_TESTS = (
    "tests/workers/retention/test_collector.py",
    "tests/workers/retention/test_collector_faults.py",
    "tests/core/retention/test_retention.py",
)
DA_TESTS = "tests/lightclient/test_da.py"

RETENTION: Final = [
    Mutant(
        "results that are not final leave the hot tier",
        DECIDE,
        "min(old_enough, final_height(state))",
        "old_enough",
        f"{COLLECTOR_TESTS} -k never_a_candidate",
    ),
    Mutant(
        "hot bytes are deleted although the warm tier lacks them",
        DEMOTER,
        "        skipped = await self._not_on_disk(rows, report)\n        dropped = [",
        "        skipped: dict[EventNo, str] = {}\n        dropped = [",
        f"{COLLECTOR_TESTS} -k only_the_store_holds",
    ),
    Mutant(
        "payload rows are deleted before the event is durable",
        DEMOTER,
        "        if report.is_dry or await is_accepted(self._engine, command, command.results, report):\n",
        "        await self._delete_payloads(sorted((row.batch, row.payload) for row in dropped))\n"
        "        if report.is_dry or await is_accepted(self._engine, command, command.results, report):\n",
        f"{COLLECTOR_FAULTS} -k only_after_the_event",
    ),
    Mutant(
        "pending deletions of an earlier owner are not finished",
        "workers/retention/collector.py",
        "            await self._demoter.delete_pending_hot(report)\n"
        "            await self._demoter.delete_pending_warm(report)\n",
        "            pass\n",
        f"{COLLECTOR_FAULTS} -k killed_at_any_step",
    ),
    Mutant(
        "bytes that another result shares are deleted",
        DEMOTER,
        "        needed = {row.result_digest for row in rows if row.event > until or row.event in staying}\n",
        "        needed = set[Digest]()\n",
        f"{COLLECTOR_TESTS} -k shared_bytes",
    ),
    Mutant(
        "bytes of a result accepted since the page was read are deleted",
        DECIDE,
        " if digest not in needed and event_of(digest) <= page.as_of\n",
        " if digest not in needed\n",
        f"{CORE_TESTS} -k after_the_rows_were_read",
    ),
    Mutant(
        "bytes of a submission that waits for its verdict are deleted",
        DECIDE,
        "    skipped, candidates, retried = _without_submitted(state, command)\n",
        "    skipped, candidates, retried = page.skipped, command.candidates, command.retried\n",
        f"{COLLECTOR_TESTS} -k being_submitted",
    ),
    Mutant(
        "a completion refers to bytes that are being deleted",
        "core/workflows/complete.py",
        "    if state.warm_deletes_pending and _is_submission(answers[0]):\n",
        "    if False:\n",
        f"{COLLECTOR_TESTS} -k about_to_be_deleted",
    ),
    Mutant(
        "bytes that are not archived are deleted",
        DEMOTER,
        "            elif is_archived or may_lose:\n",
        "            elif True:\n",
        f"{COLLECTOR_TESTS} -k until_the_archive_has_them",
    ),
    Mutant(
        "the leaf is deleted with its record",
        APPLY,
        '        state.touched["tombstone"][tombstone.event] = tombstone\n',
        '        state.touched["tombstone"][tombstone.event] = tombstone\n'
        '        state.touched["leaf"][tombstone.leaf] = None\n',
        f"{COLLECTOR_TESTS} -k leaf_stays",
    ),
    Mutant(
        "a job is purged again before the tables know that it is gone",
        "workers/job_purger.py",
        "EventNo(0) if self._after else self._purged_at",
        "EventNo(0)",
        "tests/workers/test_job_purger.py -k runs_are_bounded",
    ),
    Mutant(
        "what became final after the tables' checkpoint is evicted",
        "core/workflows/finalize.py",
        "        if final.event > event.as_of or room <= 0:\n",
        "        if room <= 0:\n",
        "tests/core/chain/test_finality.py -k after_the_tables_checkpoint",
    ),
    Mutant(
        "orphans that are submitted meanwhile are deleted",
        DECIDE,
        "_submitted_digests(state) | _result_digests(state, {digest for digest, _ in orphans})",
        "_result_digests(state, {digest for digest, _ in orphans})",
        f"{ORPHAN_TESTS} -k came_to_need",
    ),
    Mutant(
        "bytes of a result accepted since the scan are treated as an orphan",
        DECIDE,
        "if digest not in needed and event_of(digest) <= as_of)\n",
        "if digest not in needed)\n",
        f"{ORPHAN_TESTS} -k came_to_need",
    ),
    Mutant(
        "an orphan whose deletion was spared is kept for a result that does not exist",
        DECIDE,
        " if state.warm_deletes_pending.get(digest, NO_RESULT) != NO_RESULT\n",
        "\n",
        f"{ORPHAN_TESTS} -k was_spared",
    ),
    Mutant(
        "files of results are treated as orphans",
        "workers/retention/orphan_sweeper.py",
        "        return [(digest, size) for digest, size in aged if digest not in needed]\n",
        "        return list(aged)\n",
        f"{SWEEPER_TESTS} -k left_behind",
    ),
    Mutant(
        "files within the grace period are treated as orphans",
        "adapters/warm_scan.py",
        " and status.st_mtime_ns // 1_000_000 <= before_ms:\n",
        ":\n",
        f"{SWEEPER_TESTS} -k real_folder",
    ),
    Mutant(
        "an upload of known bytes does not renew the age of the file",
        "adapters/warm_store.py",
        "                os.utime(path_of(self._path, digest))",
        "                pass",
        "tests/adapters/test_warm_scan.py -k young_again",
    ),
    Mutant(
        "a scan skips the files after the end of a step",
        "adapters/warm_scan.py",
        "                return aged, scan_position(digest)\n",
        "                return aged, (int(prefix, 16) + 1) << 32\n",
        "tests/adapters/test_warm_scan.py -k every_file_once",
    ),
    Mutant(
        "the outputs of a lease are not limited",
        "api/grpc/services/output_limit.py",
        "        if digest not in digests and len(digests) >= OUTPUTS_MAX:\n",
        "        if False:\n",
        f"{OUTPUT_TESTS} -k few_outputs",
    ),
    Mutant(
        "bytes that are being deleted count as stored",
        "api/grpc/services/output_upload.py",
        "    if agents.engine.query_undurable(IsWarmDeletePending(digest)):\n",
        "    if False:\n",
        f"{OUTPUT_TESTS} -k being_deleted",
    ),
    Mutant(
        "an incomplete namespace proof is accepted",
        PROOFS,
        "    return opened.has_root(root, total) and opened.is_complete_for(namespace)\n",
        "    return opened.has_root(root, total)\n",
        f"{DA_TESTS} -k left_out",
    ),
    Mutant(
        "a proof with unused nodes is accepted",
        PROOFS,
        "        return self._over(0, total) == root and self._used == len(self._nodes)\n",
        "        return self._over(0, total) == root\n",
        f"{DA_TESTS} -k altered_proof",
    ),
    Mutant(
        "the commitment does not cover the length",
        COMMITMENT,
        "        return H(COMMITMENT_TAG, self.namespace, self.root, SHARE_BYTES, self.length)\n",
        "        return H(COMMITMENT_TAG, self.namespace, self.root, SHARE_BYTES, self.total)\n",
        f"{DA_TESTS} -k length_counts",
    ),
]
