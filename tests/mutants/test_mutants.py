"""Seeded faults: each breaks one rule in a copy of the source, and the named tests must fail."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.counts import FULL
from tests.mutants.archive.gateway import GATEWAY
from tests.mutants.chain_and_queue import CHAIN_AND_QUEUE
from tests.mutants.evidence import EVIDENCE
from tests.mutants.fairness import FAIRNESS
from tests.mutants.leases import LEASES
from tests.mutants.matching import MATCHING
from tests.mutants.mutant import Mutant
from tests.mutants.nodes.sync import SYNC
from tests.mutants.providers import PROVIDERS
from tests.mutants.quorum import QUORUM
from tests.mutants.results import RESULTS
from tests.mutants.retention import RETENTION
from tests.mutants.runs import RUNS
from tests.mutants.sending import SENDING
from tests.mutants.spool_beside_others import SPOOL_BESIDE_OTHERS

ROOT = Path(__file__).parents[2]
LOOP, PROJECTOR = "engine/loop.py", "engine/projection/projector.py"
JOURNAL, TABLES = "adapters/sqlite/journal.py", "adapters/sqlite/tables.py"
POSTGRES = "adapters/postgres"


MUTANTS = [
    Mutant(
        "a command is answered before its batch is durable",
        LOOP,
        "        if self.open_batch.events:\n            self.open_batch.waiters.append(pending)\n",
        "        if pending.commands:\n            pending.answer()\n"
        "        elif self.open_batch.events:\n            self.open_batch.waiters.append(pending)\n",
        "tests/engine/test_loop.py",
    ),
    Mutant(
        "a query is answered before what it has read is durable",
        LOOP,
        "        await self._put(PendingCommands(()))\n        return result\n",
        "        return result\n",
        "tests/engine/test_loop.py",
    ),
    Mutant(
        "an event is applied too late: the next command does not see it",
        "engine/commands/decisions.py",
        "            self._apply(events)\n",
        "            asyncio.get_running_loop().call_soon(self._apply, events)\n",
        "tests/engine/test_loop.py",
    ),
    Mutant(
        "a new owner appends no batch with its term",
        LOOP,
        "            await self.journal.append(batch, ())\n",
        "            pass\n",
        "tests/engine/test_loop.py",
    ),
    Mutant(
        "an append does not check the batch number, so a stale owner writes",
        "adapters/sql/journal.sql",
        "WHERE ?1 = 1 + coalesce((SELECT max(number) FROM batch), 0)\n  AND ?6",
        "WHERE ?6",
        "tests/storage/test_journal.py -k sqlite",
    ),
    Mutant(
        "an append does not check the parent hash",
        "adapters/sql/journal.sql",
        "  AND ?6 = coalesce((SELECT hash FROM batch WHERE number = ?1 - 1), zeroblob(32));",
        ";",
        "tests/storage/test_journal.py -k sqlite",
    ),
    Mutant(
        "two appends are in flight at once",
        LOOP,
        "                    await self._commit()\n",
        "                    asyncio.ensure_future(self._commit()); await asyncio.sleep(0)\n",
        "tests/engine/test_loop.py",
    ),
    Mutant(
        "a failed append is retried without recovery",
        LOOP,
        "            await self._recover(fault)\n",
        "            self._confirm(await self.journal.append_packed(pack, attachments), images, waiters)\n",
        "tests/engine/test_loop.py",
    ),
    Mutant(
        "the state in memory is kept after a failed append",
        LOOP,
        "        self.undurable_state, self.durable_head, self._term = recovered.state, durable, term\n",
        "        kept = getattr(self, 'undurable_state', recovered.state)\n"
        "        self.undurable_state = kept if kept.last_event else recovered.state\n"
        "        self.durable_head, self._term = durable, term\n",
        "tests/engine/test_loop.py",
    ),
    Mutant(
        "an event number is used twice",
        "core/base/event.py",
        "EventNo(head.last + 1), EventNo(head.last + count)",
        "EventNo(max(1, head.last)), EventNo(max(1, head.last) + count - 1)",
        "tests/core/test_fold.py tests/engine/test_loop.py",
    ),
    Mutant(
        "a journal that lost durable batches is used",
        LOOP,
        "        check_nothing_lost(recovered.tip, self.durable_head)\n",
        "",
        "tests/engine/test_loop.py",
    ),
    Mutant(
        "the checkpoint is written outside of its transaction",
        TABLES,
        "        with db:\n            if after is not None",
        '        db.execute(_SQL["put_checkpoint"], head_values(checkpoint))\n'
        "        with db:\n            if False and after is not None",
        "tests/storage/test_tables.py -k sqlite",
    ),
    Mutant(
        "rows that were deleted stay in the tables",
        "engine/projection/changed_rows.py",
        "_as_tuple(record) if record is not None else row_deleted(key) for key, record in records.items()\n",
        "_as_tuple(record) for record in records.values() if record is not None\n",
        "tests/engine/test_changed_rows.py -k sqlite",
    ),
    Mutant(
        "tables that are ahead of the journal are trusted",
        "engine/recover.py",
        "            _GONE,\n        )\n    return None\n",
        "            _GONE,\n        )\n    return checkpoint\n",
        "tests/engine/test_projector.py -k contradicts",
    ),
    Mutant(
        "a snapshot is read without checking its hash",
        "engine/snapshots/state_snapshot.py",
        "    if hash_ != checksum(body):\n",
        "    if False:\n",
        "tests/core/test_fold.py",
    ),
    Mutant(
        "a snapshot newer than the tables is used",
        "engine/snapshots/snapshot_files.py",
        "        if batch_number(name) > until:\n            continue\n",
        "",
        "tests/engine/test_recover.py",
    ),
    Mutant(
        "a sorted run of unique ids is lost",
        TABLES,
        "            _add_claims(db, claims, checkpoint.time_ms)\n",
        "",
        "tests/storage/test_tables.py -k sqlite",
    ),
    Mutant(
        "merged sorted runs lose their claims",
        TABLES,
        "        _add_run(db, *merge_pages(",
        "        (lambda *_: None)(db, *merge_pages(",
        "tests/storage/test_tables.py -k sqlite",
    ),
    Mutant(
        "a claim that has not expired leaves the tables",
        "adapters/sql/sorted_runs.py",
        "if until_of(record) > now_ms}",
        "if until_of(record) > now_ms + 50}",
        "tests/storage/test_tables.py -k sqlite",
    ),
    Mutant(
        "a rebuild evicts what it has not written",
        "engine/projection/projector.py",
        "_evicts_after(self.checkpoint.last, events)",
        "not events",
        "tests/workers/test_job_purger.py",
    ),
    Mutant(
        "a requeued job forgets the leases before its eviction",
        "engine/projection/changed_rows.py",
        "_pack(ended) if ended and _has_all_leases(state, job) else KEEP",
        "_pack(ended) if ended else KEEP",
        "tests/workers/test_job_purger.py",
    ),
    Mutant(
        "data of another format are read",
        "adapters/sql/named_queries.py",
        "    if have != FORMAT:\n",
        "    if have is None and have != FORMAT:\n",
        "tests/storage/test_sqlite.py -k another_format",
    ),
    Mutant(
        "old claims are not loaded from the tables",
        LOOP,
        "        recovered.state.claims.may_be_stored = self.claim_index.may_contain\n",
        "",
        "tests/engine/test_claim_index.py",
    ),
    Mutant(
        "claims leave memory without reaching the tables",
        "engine/claim_index.py",
        "        if claims.older and checkpoint.number >= self._older_until:\n",
        "        if claims.older:\n",
        "tests/engine/test_projector_faults.py -k before_the_tables_hold_it",
    ),
    Mutant(
        "a projector writes over tables that another one has written",
        "engine/projection/projector.py",
        "                await self._tables.write(rows, claims, self._tip, after=self.checkpoint)\n",
        "                await self._tables.write(rows, claims, self._tip)\n",
        "tests/engine/test_projector_faults.py",
    ),
    Mutant(
        "a projector does not notice that the tables moved",
        "engine/projection/projector.py",
        "        if stored not in (self.checkpoint, self._tip):\n",
        "        if False:\n",
        "tests/engine/test_projector_faults.py",
    ),
    Mutant(
        "a row is read before the tables have reached its eviction",
        "engine/queries/records.py",
        "        if as_of >= needed:\n",
        "        if True:\n",
        "tests/engine/test_projector_faults.py -k waits_until",
    ),
    Mutant(
        "new leases do not wait for tables that are far behind",
        "engine/projection/progress.py",
        "        return kind in ADMITTING or (kind in LEASING and lag > policy.tables_lag_events_max)\n",
        "        return kind in ADMITTING\n",
        "tests/engine/test_projector.py -k farther_behind",
    ),
    Mutant(
        "a repeat is not compared with the first command",
        "core/index/unique_ids.py",
        "    if is_same:\n",
        "    if True:\n",
        "tests/core/escrow/test_escrow.py",
    ),
    Mutant(
        "the batch clock follows the wall clock",
        "engine/batch_clock.py",
        "        return self._start_ms + max(0, self._clock.monotonic_ms() - self._zero_ms)\n",
        "        return self._clock.wall_ms()\n",
        "tests/engine/test_loop.py",
    ),
    Mutant(
        "the event stream shows a batch that is not durable",
        LOOP,
        "            self._in_flight = waiters\n",
        "            self._in_flight = waiters; self.event_stream.add(batch)\n",
        "tests/engine/test_loop.py tests/engine/test_event_stream.py",
    ),
    Mutant(
        "the SQLite journal does not sync every commit",
        JOURNAL,
        'db = connect(self._path, "FULL")',
        'db = connect(self._path, "NORMAL")',
        "tests/storage/test_sqlite.py",
    ),
    Mutant(
        "a large payload is written outside of its batch's transaction",
        JOURNAL,
        '        with db:\n            db.execute(_SQL["append"], batch_values(batch))\n',
        '        db.executemany(_SQL["attach"], [(batch.number, each.digest, each.raw) for each in attachments])\n'
        '        with db:\n            db.execute(_SQL["append"], batch_values(batch))\n',
        "tests/storage/test_journal.py -k sqlite",
    ),
    Mutant(
        "PostgreSQL: an append does not check the parent hash",
        "adapters/sql/postgres_journal.sql",
        "    WHERE EXISTS (SELECT FROM {partition} WHERE number = $1::bigint - 1 AND hash = $6::bytea)\n",
        "    WHERE EXISTS (SELECT FROM {partition} WHERE number = $1::bigint - 1)\n",
        "tests/storage/test_journal.py -k postgres",
    ),
    Mutant(
        "PostgreSQL: an append does not check the batch number",
        "adapters/sql/postgres_journal.sql",
        "    WHERE EXISTS (SELECT FROM {partition} WHERE number = $1::bigint - 1 AND hash = $6::bytea)\n",
        "    WHERE $6 IN (SELECT hash FROM {partition})\n",
        "tests/storage/test_journal.py -k postgres",
    ),
    Mutant(
        "PostgreSQL: the advisory lock is not acquired",
        f"{POSTGRES}/lock.py",
        '    while not await connection.fetchval("SELECT pg_try_advisory_lock($1)", key):\n',
        "    while False:\n",
        "tests/storage/test_journal.py -k postgres",
    ),
    Mutant(
        "PostgreSQL: a connection is used again after an unknown outcome",
        f"{POSTGRES}/journal.py",
        "            self._appender = None\n            appender.connection.terminate()\n            raise\n",
        "            raise\n",
        "tests/storage/test_postgres_faults.py -k gives_up",
    ),
    Mutant(
        "PostgreSQL: a commit with a warning is confirmed",
        f"{POSTGRES}/append.py",
        "        if self._warning:\n",
        "        if False:\n",
        "tests/storage/test_postgres_faults.py -k warning",
    ),
    Mutant(
        "PostgreSQL: a large payload is written outside of its batch's transaction",
        f"{POSTGRES}/append.py",
        "                async with self.connection.transaction():\n                    await self._add_batch(batch)\n",
        "                if True:\n                    await self._add_batch(batch)\n",
        "tests/storage/test_postgres_faults.py -k before_any_table",
    ),
    Mutant(
        "PostgreSQL: unsafe server settings are accepted",
        f"{POSTGRES}/server.py",
        "    if not allow_unsafe and (unsafe := await unsafe_settings(connection)):\n",
        "    if False and (unsafe := await unsafe_settings(connection)):\n",
        "tests/storage/test_postgres.py -k wait_for_the_disk",
    ),
    Mutant(
        "PostgreSQL: the checkpoint is written outside of its transaction",
        f"{POSTGRES}/tables.py",
        "                transaction = connection.transaction()\n                await transaction.start()\n"
        "                await work(connection)\n                await transaction.commit()\n",
        "                await work(connection)\n",
        "tests/storage/test_tables.py -k postgres",
    ),
    Mutant(
        "PostgreSQL: a sorted run of unique ids is lost",
        f"{POSTGRES}/tables.py",
        "    await add_claims(connection, claims, checkpoint.time_ms)\n",
        "",
        "tests/storage/test_tables.py -k postgres",
    ),
    Mutant(
        "PostgreSQL: a write with an unknown outcome is done twice",
        f"{POSTGRES}/tables.py",
        "    if after is not None and (stored := await _checkpoint(connection)) != after:\n",
        "    if after is not None and (stored := await _checkpoint(connection)) != after and False:\n",
        "tests/storage/test_postgres_writer.py -k landed_unknown",
    ),
    Mutant(
        "a reader misses sorted runs that are merged meanwhile",
        "adapters/sql/sorted_runs.py",
        "    while unseen := [run for run, *_ in await list_runs() if run not in seen]:\n",
        "    if unseen := [run for run, *_ in await list_runs() if run not in seen]:\n",
        "tests/storage/test_tables.py -k sqlite",
    ),
    *CHAIN_AND_QUEUE,
    *RETENTION,
    *RUNS,
    *RESULTS,
    *SENDING,
    *SPOOL_BESIDE_OTHERS,
    *SYNC,
    *LEASES,
    *FAIRNESS,
    *MATCHING,
    *EVIDENCE,
    *PROVIDERS,
    *QUORUM,
    *GATEWAY,
]


CHOSEN = MUTANTS if FULL else MUTANTS[::32]
"""`make test` runs one in thirty-two, `make test-all` all: each costs a run of the tests that must fail."""


def test_every_seeded_fault_matches_the_source_exactly_once() -> None:
    sources = {file: (ROOT / "src/holdfast" / file).read_text() for file in {mutant.file for mutant in MUTANTS}}
    stale = [mutant.fault for mutant in MUTANTS if sources[mutant.file].count(mutant.old) != 1]
    assert stale == []


@pytest.mark.rule("ENG-002")
@pytest.mark.parametrize("mutant", CHOSEN, ids=[re.sub(r"\W+", "-", mutant.fault) for mutant in CHOSEN])
def test_a_seeded_fault_is_detected(mutant: Mutant, tmp_path: Path) -> None:
    package = tmp_path / "holdfast"
    # What is compiled comes along, times and all: only the changed file is compiled again.
    shutil.copytree(ROOT / "src" / "holdfast", package, ignore=shutil.ignore_patterns("*.pyc.*"))
    file = package / mutant.file
    source = file.read_text()
    assert source.count(mutant.old) == 1, "the source has changed: update the mutant"
    file.write_text(source.replace(mutant.old, mutant.new))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout", "10"]
    environ = os.environ | {"PYTHONPATH": str(tmp_path), "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path / "hypothesis")}
    environ.pop("HOLDFAST_FULL", None)
    run = subprocess.run(
        [*command, *mutant.seen_by.split()], cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, f"not detected: {mutant.fault}\n{run.stdout[-2000:]}"
