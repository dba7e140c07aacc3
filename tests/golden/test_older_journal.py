"""CAN-005, proved by synthetic journals and snapshots of an older and of a newer version.

An older version packed its records without the fields that came later, a newer one adds fields that we do not know.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest
from tests.golden.make import make
from tests.simulation.journal import Disk, SimulatedJournal
from tests.simulation.world import DEVELOPMENT, SimulatedFiles

from holdfast.core import journal_codec
from holdfast.core.base.canonical import H
from holdfast.core.base.event import JournalHead, head_of, seal_batch
from holdfast.core.base.values import BatchNo
from holdfast.core.state import PARTS, State, StatePart
from holdfast.core.state_snapshot import MAGIC, SNAPSHOT_TAG, digest, restore, snapshot
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


def stored_parts(state: State, head: JournalHead) -> tuple[list[Any], dict[str, msgspec.Raw]]:
    """The fields of a stored snapshot, each as the bytes it is packed in, and the last one's parts by name."""
    raw = snapshot(state, head)
    *fields, parts = msgspec.msgpack.decode(raw[len(MAGIC) + len(H("")) :], type=list[msgspec.Raw])
    return fields, msgspec.msgpack.decode(parts, type=dict[str, msgspec.Raw])


def restored_digest(fields: list[Any]) -> bytes:
    """The digest of the state that a snapshot of these fields restores."""
    body = _pack(fields)
    return digest(restore(MAGIC + H(SNAPSHOT_TAG, body) + body, DEVELOPMENT)[0])


async def test_a_part_missing_from_a_snapshot_is_empty() -> None:
    entries, _ = await packed_by(older_or_newer)
    state, head = folded(entries[:20])
    fields, parts = stored_parts(state, head)
    used = {name: packed for name, packed in parts.items() if msgspec.msgpack.decode(packed)}
    assert {"accounts", "reservations"} <= used.keys() < parts.keys()
    assert restored_digest([*fields, used]) == digest(state)


async def test_a_snapshot_is_read_without_the_parts_and_fields_a_newer_version_added() -> None:
    entries, _ = await packed_by(older_or_newer)
    state, head = folded(entries)
    fields, parts = stored_parts(state, head)
    unknown = parts | {"from_the_future": _raw({1: 2})}
    assert restored_digest([*fields, unknown, *FROM_THE_FUTURE]) == digest(state)


@pytest.mark.parametrize("part", [part for part in PARTS if part.key], ids=lambda part: part.stored)
async def test_a_record_in_a_snapshot_may_lack_trailing_fields_or_have_unknown_ones(part: StatePart) -> None:
    entries, _ = await packed_by(older_or_newer)
    for cut in range(len(entries), 0, -10):
        state, head = folded(entries[:cut])
        fields, parts = stored_parts(state, head)
        if records := msgspec.msgpack.decode(parts[part.stored], type=part.type):
            break
    assert records
    for version in (without_late_fields, with_unknown_fields):
        changed = parts | {part.stored: _raw([version(record) for record in records])}
        assert restored_digest([*fields, changed]) == digest(state)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(_pack(value))
