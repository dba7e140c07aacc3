"""Seeded faults: each breaks one promise in a copy of the source, and the named tests must see it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.counts import FULL
from tests.mutants.evidence import EVIDENCE
from tests.mutants.leases import LEASES
from tests.mutants.matching import MATCHING
from tests.mutants.mutant import Mutant
from tests.mutants.providers import PROVIDERS
from tests.mutants.quorum import QUORUM
from tests.mutants.results import RESULTS
from tests.mutants.retention import RETENTION
from tests.mutants.sending import SENDING
from tests.mutants.stations import STATIONS

ROOT = Path(__file__).parents[2]
LOOP, HISTORY, PROJECT = "engine/loop.py", "engine/history.py", "engine/project.py"
JOURNAL, TABLES = "adapters/sqlite/journal.py", "adapters/sqlite/tables.py"
POSTGRES = "adapters/postgres"


MUTANTS = [
    Mutant(
        "answer before commit",
        LOOP,
        "        await self._durable()\n        return outcome\n",
        "        return outcome\n",
        "tests/engine/test_loop.py",
    ),
    Mutant(
        "read before commit",
        LOOP,
        "        await self._durable()\n        return answer\n",
        "        return answer\n",
        "tests/engine/test_loop.py",
    ),
    Mutant(
        "apply after answer: the next command does not see this one",
        LOOP,
        "        self._apply(decided.events)\n",
        "        asyncio.get_running_loop().call_soon(self._apply, decided.events)\n",
        "tests/engine/test_loop.py",
    ),
    Mutant(
        "epoch not announced: a new owner writes nothing of its own",
        LOOP,
        "        await self.journal.append(batch, ())\n",
        "        pass\n",
        "tests/engine/test_loop.py",
    ),
    Mutant(
        "number not checked: a stale owner writes",
        "adapters/sql/journal.sql",
        "WHERE ?1 = 1 + coalesce((SELECT max(number) FROM batch), 0)\n  AND ?6",
        "WHERE ?6",
        "tests/storage/test_journal.py -k sqlite",
    ),
    Mutant(
        "parent not checked",
        "adapters/sql/journal.sql",
        "  AND ?6 = coalesce((SELECT hash FROM batch WHERE number = ?1 - 1), zeroblob(32));",
        ";",
        "tests/storage/test_journal.py -k sqlite",
    ),
    Mutant(
        "two appends in flight",
        LOOP,
        "                await self._commit()\n",
        "                asyncio.ensure_future(self._commit()); await asyncio.sleep(0)\n",
        "tests/engine/test_loop.py",
    ),
    Mutant(
        "a failed append is simply tried again",
        LOOP,
        "            await self._begin_again(fault)\n",
        "            await self.journal.append(batch, attachments); self._confirm(batch, images, waiters)\n",
        "tests/engine/test_loop.py",
    ),
    Mutant(
        "memory kept after a failed append",
        LOOP,
        "        self._reset(found.state, tip_of(batch), epoch, found.history, found.checkpoint)\n",
        "        kept = self.state\n"
        "        self._reset(found.state, tip_of(batch), epoch, found.history, found.checkpoint)\n"
        "        self.state = kept if kept.last_event else found.state\n",
        "tests/engine/test_loop.py",
    ),
    Mutant(
        "event number reused after success",
        "core/event.py",
        "EventNo(tip.last + 1), EventNo(tip.last + count)",
        "EventNo(max(1, tip.last)), EventNo(max(1, tip.last) + count - 1)",
        "tests/core/test_fold.py tests/engine/test_loop.py",
    ),
    Mutant(
        "a journal that forgot is built upon",
        LOOP,
        "        self._check_nothing_lost(found.tip)\n",
        "",
        "tests/engine/test_loop.py",
    ),
    Mutant(
        "checkpoint outside its transaction",
        TABLES,
        "        with db:\n            for table, lines in rows.items():\n",
        "        tip = (checkpoint.number, checkpoint.epoch, checkpoint.last, checkpoint.time_ms, checkpoint.hash)\n"
        '        db.execute(_SQL["put_checkpoint"], tip)\n'
        "        with db:\n            for table, lines in rows.items():\n",
        "tests/storage/test_tables.py -k sqlite",
    ),
    Mutant(
        "images taken from later state",
        PROJECT,
        "rows[table, key] = msgspec.structs.astuple(record)",
        "rows[table, key] = record",
        "tests/engine/test_project.py",
    ),
    Mutant(
        "tables ahead of the journal are believed",
        "engine/recover.py",
        "    await tables.drop()\n    return Tip()\n",
        "    return checkpoint\n",
        "tests/engine/test_project.py",
    ),
    Mutant(
        "snapshot believed without its hash",
        "core/state.py",
        "    if hash_ != H(SNAPSHOT_TAG, body):\n",
        "    if False:\n",
        "tests/core/test_fold.py",
    ),
    Mutant(
        "snapshot above the tables is used",
        "engine/snapshot.py",
        "        if number_of(name) > until:\n            continue\n",
        "",
        "tests/engine/test_recover.py",
    ),
    Mutant(
        "unique lot dropped",
        TABLES,
        "            if claims:\n                _add_lot(db, claims)\n",
        "",
        "tests/storage/test_tables.py -k sqlite",
    ),
    Mutant(
        "merged lots lose their claims",
        TABLES,
        '        db.execute(_SQL["merge_lot"]',
        '        lambda: db.execute(_SQL["merge_lot"]',
        "tests/storage/test_tables.py -k sqlite",
    ),
    Mutant(
        "old claims are not recalled",
        LOOP,
        "        if key is not None and self.history.must_recall(self.state, key):\n            return None\n",
        "",
        "tests/engine/test_history.py",
    ),
    Mutant(
        "claims let go before the tables have them",
        PROJECT,
        "        tables = by_table(self._writing)\n",
        "        tables = by_table(self._writing); self._on_written(claims); claims = []\n",
        "tests/engine/test_history.py",
    ),
    Mutant(
        "a repeat is not compared with the first",
        "core/claim.py",
        "    if is_same:\n",
        "    if True:\n",
        "tests/core/test_escrow.py",
    ),
    Mutant(
        "time follows the wall clock",
        "engine/timekeeper.py",
        "        return self._start_ms + max(0, self._clock.monotonic_ms() - self._zero_ms)\n",
        "        return self._clock.wall_ms()\n",
        "tests/engine/test_loop.py",
    ),
    Mutant(
        "a follower is told before the batch is durable",
        LOOP,
        "            self._in_flight = waiters\n",
        "            self._in_flight = waiters; self.tail.add(batch)\n",
        "tests/engine/test_loop.py tests/engine/test_tail.py",
    ),
    Mutant(
        "the journal does not sync",
        JOURNAL,
        'db = connect(self._path, "FULL")',
        'db = connect(self._path, "NORMAL")',
        "tests/storage/test_sqlite.py",
    ),
    Mutant(
        "a large payload outside the batch's transaction",
        JOURNAL,
        '        with db:\n            db.execute(_SQL["append"], values)\n',
        '        db.executemany(_SQL["attach"], [(batch.number, each.digest, each.raw) for each in attachments])\n'
        '        with db:\n            db.execute(_SQL["append"], values)\n',
        "tests/storage/test_journal.py -k sqlite",
    ),
    Mutant(
        "on PostgreSQL: parent not checked",
        "adapters/sql/postgres_journal.sql",
        "    WHERE EXISTS (SELECT FROM {part} WHERE number = $1::bigint - 1 AND hash = $6::bytea)\n",
        "    WHERE EXISTS (SELECT FROM {part} WHERE number = $1::bigint - 1)\n",
        "tests/storage/test_journal.py -k postgres",
    ),
    Mutant(
        "on PostgreSQL: number not checked",
        "adapters/sql/postgres_journal.sql",
        "    WHERE EXISTS (SELECT FROM {part} WHERE number = $1::bigint - 1 AND hash = $6::bytea)\n",
        "    WHERE $6 IN (SELECT hash FROM {part})\n",
        "tests/storage/test_journal.py -k postgres",
    ),
    Mutant(
        "on PostgreSQL: the lock is not taken",
        f"{POSTGRES}/lock.py",
        '    while not await connection.fetchval("SELECT pg_try_advisory_lock($1)", key):\n',
        "    while False:\n",
        "tests/storage/test_journal.py -k postgres",
    ),
    Mutant(
        "on PostgreSQL: after an unknown outcome the old connection is used again",
        f"{POSTGRES}/journal.py",
        "            self._owned = None\n            owned.connection.terminate()\n            raise\n",
        "            raise\n",
        "tests/storage/test_postgres_faults.py -k gives_up",
    ),
    Mutant(
        "on PostgreSQL: a commit with a warning is confirmed",
        f"{POSTGRES}/append.py",
        "        if self._warning:\n",
        "        if False:\n",
        "tests/storage/test_postgres_faults.py -k warning",
    ),
    Mutant(
        "on PostgreSQL: a large payload outside the batch's transaction",
        f"{POSTGRES}/append.py",
        "            async with self.connection.transaction():\n                await self._add_batch(batch)\n",
        "            if True:\n                await self._add_batch(batch)\n",
        "tests/storage/test_postgres_faults.py -k before_any_table",
    ),
    Mutant(
        "on PostgreSQL: dangerous settings are overlooked",
        f"{POSTGRES}/server.py",
        "    if not allow_unsafe and (found := await dangers(connection)):\n",
        "    if False and (found := await dangers(connection)):\n",
        "tests/storage/test_postgres.py -k wait_for_the_disk",
    ),
    Mutant(
        "on PostgreSQL: checkpoint outside its transaction",
        f"{POSTGRES}/tables.py",
        "                transaction = connection.transaction()\n                await transaction.start()\n"
        "                await work(connection)\n                await transaction.commit()\n",
        "                await work(connection)\n",
        "tests/storage/test_tables.py -k postgres",
    ),
    Mutant(
        "on PostgreSQL: unique lot dropped",
        f"{POSTGRES}/tables.py",
        "    if claims:\n        await add_lot(connection, claims)\n",
        "",
        "tests/storage/test_tables.py -k postgres",
    ),
    Mutant(
        "on PostgreSQL: a write that landed unknown is done twice",
        f"{POSTGRES}/tables.py",
        "        return found == checkpoint\n",
        "        return False\n",
        "tests/storage/test_postgres_writer.py -k landed_unknown",
    ),
    Mutant(
        "lots merged under a reader are missed",
        "adapters/sql/lots.py",
        "    while fresh := [lot for lot, _ in await lots() if lot not in seen]:\n",
        "    if fresh := [lot for lot, _ in await lots() if lot not in seen]:\n",
        "tests/storage/test_tables.py -k sqlite",
    ),
    *STATIONS,
    *RETENTION,
    *RESULTS,
    *SENDING,
    *LEASES,
    *MATCHING,
    *EVIDENCE,
    *PROVIDERS,
    *QUORUM,
]


CHOSEN = MUTANTS if FULL else MUTANTS[::16]
"""Every day a sixteenth of them, all in `make test-all`: each costs a run of the tests that should see it."""


def test_every_seeded_fault_still_has_its_place_in_the_source() -> None:
    stale = [each.says for each in MUTANTS if (ROOT / "src/holdfast" / each.file).read_text().count(each.old) != 1]
    assert stale == []


@pytest.mark.rule("ENG-002")
@pytest.mark.parametrize("mutant", CHOSEN, ids=[re.sub(r"\W+", "-", mutant.says) for mutant in CHOSEN])
def test_a_seeded_fault_is_seen(mutant: Mutant, tmp_path: Path) -> None:
    package = tmp_path / "holdfast"
    shutil.copytree(ROOT / "src" / "holdfast", package, ignore=shutil.ignore_patterns("__pycache__"))
    file = package / mutant.file
    source = file.read_text()
    assert source.count(mutant.old) == 1, "the source has changed: mend the mutant"
    file.write_text(source.replace(mutant.old, mutant.new))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout", "10"]
    environ = os.environ | {"PYTHONPATH": str(tmp_path), "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path / "hypothesis")}
    environ.pop("HOLDFAST_FULL", None)
    run = subprocess.run(
        [*command, *mutant.seen_by.split()], cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, f"nobody saw: {mutant.says}\n{run.stdout[-2000:]}"
