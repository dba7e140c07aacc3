"""Golden files of stored format 1: a journal, a snapshot of its middle, and what the tables hold at its end.

    python -m tests.golden.make_format_1

makes them anew from the run of `make`. The format is fixed: after 0.5 they are made again only with a new number.
"""

from __future__ import annotations

import asyncio
import json
import lzma
import tempfile
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec
from tests.golden.make import make
from tests.simulation.world import DEVELOPMENT, SimulatedFiles

from holdfast.adapters.sqlite.journal import SqliteJournal
from holdfast.adapters.sqlite.tables import SqliteTables
from holdfast.core.base.values import BatchNo
from holdfast.core.tables import TABLES
from holdfast.engine.recover import rebuild_tables
from holdfast.engine.snapshots import snapshot_files
from holdfast.history.export_import import ExportManifest, import_journal
from holdfast.history.full_journal import FullJournal
from holdfast.ports import CLAIMS, Row

HERE: Final = Path(__file__).parent / "format_1"
JOURNAL, SNAPSHOT, PINNED = HERE / "journal.db.xz", HERE / "middle.snapshot.xz", HERE / "pinned.json"
CLAIM_COLUMNS: Final = ("id", "event", "checksum", "until_ms")
_pack = msgspec.msgpack.Encoder().encode


def rows_digest(rows: Iterable[Row], places: Iterable[int]) -> str:
    """Of the rows in the order of their bytes, with the columns at these places alone."""
    hasher, kept = sha256(), list(places)
    for packed in sorted(_pack([row[place] for place in kept]) for row in rows):
        hasher.update(packed)
    return hasher.hexdigest()


async def dump_rows(tables: SqliteTables) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    async for _, table, rows in tables.dump():
        found.setdefault(table, []).extend(rows)
    return found


def columns_of(table: str) -> tuple[str, ...]:
    """Those that are pinned. Packed ones are not: the records in them may grow, and the state's digest covers them."""
    return CLAIM_COLUMNS if table == CLAIMS else TABLES[table].columns


async def write_golden_files(target: Path) -> None:
    export, archive = SimulatedFiles(), SimulatedFiles()
    await make(export)
    journal, tables = SqliteJournal(target), SqliteTables(target)
    full = FullJournal(journal, archive)
    manifest = await import_journal(export, full, DEVELOPMENT)
    assert isinstance(manifest, ExportManifest), manifest
    files = SimulatedFiles()
    await snapshot_files.make(files, full, DEVELOPMENT, until=BatchNo(manifest.batches // 2))
    await rebuild_tables(full, tables, SimulatedFiles(), DEVELOPMENT, is_dropped=False)
    pinned: dict[str, Any] = {"batches": manifest.batches, "events": manifest.events, "digest": manifest.digest}
    pinned["tables"] = {
        table: {
            "columns": " ".join(columns_of(table)),
            "rows": len(rows),
            "sha256": rows_digest(rows, range(len(columns_of(table)))),
        }
        for table, rows in sorted((await dump_rows(tables)).items())
        if rows
    }
    await journal.close()
    await tables.close()
    apsw.Connection(str(target / "journal.db")).execute("VACUUM INTO ?", (str(target / "vacuumed.db"),))
    HERE.mkdir(exist_ok=True)
    (snapshot,) = files.files.values()
    for path, raw in ((JOURNAL, (target / "vacuumed.db").read_bytes()), (SNAPSHOT, snapshot)):
        path.write_bytes(lzma.compress(raw, preset=9))
    PINNED.write_text(json.dumps(pinned, indent=1) + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(write_golden_files(Path(made)))
