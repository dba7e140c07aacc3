"""CAN-005, proved by synthetic journals and snapshots of an older and of a newer version.

An older version packed its records without the fields that came later, a newer one adds fields that we do not know.
"""

from __future__ import annotations

from array import array
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from tests.golden.make import make
from tests.simulation.journal import Disk, SimulatedJournal
from tests.simulation.world import DEVELOPMENT, SimulatedFiles

from holdfast.core import journal_codec
from holdfast.core.base.event import JournalHead, head_of, seal_batch
from holdfast.core.base.values import BatchNo
from holdfast.core.state import PARTS, State, StatePart
from holdfast.core.state_digest import digest
from holdfast.engine.snapshots.state_snapshot import MAGIC, checksum, restore, snapshot
from holdfast.engine.snapshots.waiting_columns import GroupColumns, WaitingColumns
from holdfast.history.archive_segments import ArchiveEntry, SegmentFolder, journal_entries
from holdfast.history.export_import import ExportManifest, export_journal, import_journal
from holdfast.history.full_journal import FullJournal

pytestmark = pytest.mark.rule("CAN-005")
FROM_THE_FUTURE: Final = [None, {"added": "by a newer version"}, b"bytes"]
_pack = msgspec.msgpack.Encoder().encode


def without_late_fields(event: msgspec.Struct) -> list[Any]:
    """The event as a version packed it that did not know its trailing fields, where these say nothing."""
    packed: list[Any] = msgspec.msgpack.decode(_pack(event))
    for field in reversed(msgspec.structs.fields(event)):
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if getattr(event, field.name) != default:
            break
        packed.pop()
    return packed


def with_unknown_fields(event: msgspec.Struct) -> list[Any]:
    """The event as a version packs it that added fields after the last one."""
    return [*msgspec.msgpack.decode(_pack(event)), *FROM_THE_FUTURE]


def older_or_newer(event: msgspec.Struct) -> list[Any]:
    """Short where that is possible, else long: both in one journal."""
    short = without_late_fields(event)
    return short if len(short) < len(event.__struct_fields__) + 1 else with_unknown_fields(event)


async def packed_by(version: Any) -> tuple[list[ArchiveEntry], list[ArchiveEntry]]:
    """The entries of a whole run, and the same run as another version would have packed it."""
    files = SimulatedFiles()
    await make(files)
    ours = [entry async for entry in SegmentFolder(files).entries(BatchNo(0))]
    theirs, head = [], JournalHead()
    for entry in ours:
        body = _pack([version(event) for event in journal_codec.unpack(entry.batch)])
        count = entry.batch.last - entry.batch.first + 1
        batch = seal_batch(head, entry.batch.term, count, entry.batch.time_ms, body)
        theirs.append(ArchiveEntry(batch, entry.attachments))
        head = head_of(batch)
    assert sum(len(entry.batch.body) for entry in ours) != sum(len(entry.batch.body) for entry in theirs)
    return ours, theirs


def folded(entries: list[ArchiveEntry]) -> tuple[State, JournalHead]:
    state = State(DEVELOPMENT)
    return state, journal_codec.fold(state, JournalHead(), (entry.batch for entry in entries))


@pytest.mark.rule("ENG-003")
@pytest.mark.parametrize("version", [without_late_fields, with_unknown_fields, older_or_newer])
async def test_it_folds_to_the_same_state(version: Any) -> None:
    ours, theirs = await packed_by(version)
    assert digest(folded(theirs)[0]) == digest(folded(ours)[0])


@pytest.mark.rule("ENG-004")
async def test_it_is_copied_byte_for_byte() -> None:
    _, entries = await packed_by(older_or_newer)
    source = FullJournal(SimulatedJournal(Disk()), SimulatedFiles())
    await source.acquire()
    for entry in entries:
        await source.append(entry.batch, entry.attachments)
    export = SimulatedFiles()
    assert isinstance(await export_journal(source, export, DEVELOPMENT), ExportManifest)
    target = FullJournal(SimulatedJournal(Disk()), SimulatedFiles())
    assert isinstance(await import_journal(export, target, DEVELOPMENT), ExportManifest)
    await target.trim(BatchNo(len(entries) // 2))
    assert [entry async for entry in target.entries(BatchNo(0))] == entries
    assert [entry async for entry in journal_entries(target.store, BatchNo(0))] == entries[len(entries) // 2 :]


# ------------------------------------------------------------------------------------------------ snapshots


class Stored(NamedTuple):
    """A stored snapshot, taken apart."""

    fields: list[msgspec.Raw]
    parts: dict[str, msgspec.Raw]
    waiting_jobs: msgspec.Raw


def stored_snapshot(state: State, head: JournalHead) -> Stored:
    body = snapshot(state, head)[len(MAGIC) + len(checksum(b"")) :]
    *fields, parts, waiting_jobs = msgspec.msgpack.decode(body, type=list[msgspec.Raw])
    return Stored(fields, msgspec.msgpack.decode(parts, type=dict[str, msgspec.Raw]), waiting_jobs)


def restored(stored: Stored, *more: Any) -> State:
    """The state that a snapshot of these fields restores."""
    body = _pack([*stored.fields, stored.parts, stored.waiting_jobs, *more])
    return restore(MAGIC + checksum(body) + body, DEVELOPMENT)[0]


async def test_a_part_missing_from_a_snapshot_is_empty() -> None:
    entries, _ = await packed_by(older_or_newer)
    state, head = folded(entries[:20])
    stored = stored_snapshot(state, head)
    used = {name: packed for name, packed in stored.parts.items() if msgspec.msgpack.decode(packed)}
    assert {"accounts", "reservations"} <= used.keys() < stored.parts.keys()
    assert digest(restored(stored._replace(parts=used))) == digest(state)


async def test_a_snapshot_is_read_without_the_parts_and_fields_a_newer_version_added() -> None:
    entries, _ = await packed_by(older_or_newer)
    state, head = folded(entries)
    stored = stored_snapshot(state, head)
    unknown = stored.parts | {"from_the_future": _raw({1: 2})}
    assert digest(restored(stored._replace(parts=unknown), *FROM_THE_FUTURE)) == digest(state)


@pytest.mark.parametrize("part", [part for part in PARTS if part.key], ids=lambda part: part.stored)
async def test_a_record_in_a_snapshot_may_lack_trailing_fields_or_have_unknown_ones(part: StatePart) -> None:
    entries, _ = await packed_by(older_or_newer)
    for cut in range(len(entries), 0, -10):
        state, head = folded(entries[:cut])
        stored = stored_snapshot(state, head)
        if records := msgspec.msgpack.decode(stored.parts[part.stored], type=part.type):
            break
    assert records
    for version in (without_late_fields, with_unknown_fields):
        changed = stored.parts | {part.stored: _raw([version(record) for record in records])}
        assert digest(restored(stored._replace(parts=changed))) == digest(state)


async def test_a_waiting_job_with_unknown_fields_is_read_and_stored_again_byte_for_byte() -> None:
    entries, _ = await packed_by(older_or_newer)
    for cut in range(len(entries), 0, -10):
        state, head = folded(entries[:cut])
        if (columns := packed_columns(state, head)).groups:
            break
    newer = msgspec.structs.replace(columns, groups=[from_newer(group) for group in columns.groups])
    found = restored(stored_snapshot(state, head)._replace(waiting_jobs=_raw(newer)))
    assert digest(found) == digest(state)
    assert packed_columns(found, head) == newer != columns


def packed_columns(state: State, head: JournalHead) -> WaitingColumns:
    return msgspec.msgpack.decode(stored_snapshot(state, head).waiting_jobs, type=WaitingColumns)


def from_newer(group: GroupColumns) -> GroupColumns:
    """The same jobs as a version packs them that added fields after the last one."""
    begins = [0, *accumulate(array("I", group.lengths))]
    longer = [group.jobs[begin:end] + _pack(FROM_THE_FUTURE) for begin, end in pairwise(begins)]
    return msgspec.structs.replace(group, lengths=array("I", map(len, longer)).tobytes(), jobs=b"".join(longer))


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(_pack(value))
