"""Keeps index and store in step: repair after a crash, rebuilding, and a scrubber that reads everything again.

The store is right and the index follows it. Nothing here deletes an item (ARC-004).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from holdfast.adapters.item_index import BucketEntry
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.gateway.item_store import ItemStore
from holdfast.gateway.records import PUBLIC, ItemRecord, UploadRecord, data_key, decode_upload, id_of_meta, item_key
from holdfast.system.durable_files import replace_file
from holdfast.wire.ans104 import DataHash, ItemHeader

PAGE: Final = 500
FINDINGS_MAX: Final = 1_000
Verify = Callable[[ItemHeader, DataHash], bool]
_log = structlog.get_logger()


class Finding(msgspec.Struct, frozen=True):
    """Something that is missing or damaged."""

    object: str
    fault: str


class Report(msgspec.Struct, kw_only=True):
    """What one pass has seen."""

    uploads: int = 0
    bytes: int = 0
    added: int = 0
    """Uploads that the index did not have."""
    findings: list[Finding] = []
    findings_total: int = 0
    after: str = ""
    """The last record that was looked at: where a pass goes on after a restart."""
    is_whole: bool = False

    def find(self, object_: str, fault: str) -> None:
        self.findings_total += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(object_, fault))
        _log.error("item_fault", object=object_, fault=fault)


async def repair_index(store: ItemStore, on_progress: Callable[[Report], None] | None = None) -> Report:
    """Add every stored upload that the index does not have."""
    report = Report()
    async for page in _pages(store, ""):
        for key in await _unindexed(store, page, report):
            await _add(store, key, report)
        report.uploads += len(page)
        if on_progress is not None:
            on_progress(report)
    report.is_whole = True
    return report


async def check_store(store: ItemStore) -> Report:
    """Whether every upload has its record, its data in full length and its row; data is not read."""
    report = Report()
    async for page in _pages(store, ""):
        for key in await _unindexed(store, page, report):
            report.find(key, "not in the index")
        for key in page:
            record = await _record(store, key, report)
            if record is not None and (size := await store.objects.size(data_key(id_of_meta(key)))) != record.data_size:
                what = "missing" if size is None else f"{size} bytes, expected {record.data_size}"
                report.find(data_key(id_of_meta(key)), what)
        report.uploads += len(page)
    report.is_whole = True
    return report


async def scrub(store: ItemStore, verify: Verify, report: Report, pause: Callable[[int], Awaitable[None]]) -> Report:
    """Read everything again, from where the report ends; `pause` is called with the bytes that were read."""
    async for page in _pages(store, report.after):
        for key in await _unindexed(store, page, report):
            await _add(store, key, report)
        for key in page:
            record = await _record(store, key, report)
            if record is not None:
                await _check_item(store, id_of_meta(key), record, verify, report)
                report.bytes += record.size
            report.uploads += 1
            report.after = key
            await pause(0 if record is None else record.size)
    report.is_whole = True
    return report


async def read_all(store: ItemStore, verify: Verify, report: Report) -> Report:
    """The same at full speed and beside a gateway that runs: the index is only read."""
    async for page in _pages(store, report.after):
        for key in await _unindexed(store, page, report):
            report.find(key, "not in the index")
        for key in page:
            record = await _record(store, key, report)
            if record is not None:
                await _check_item(store, id_of_meta(key), record, verify, report)
                report.bytes += record.size
            report.uploads += 1
    report.is_whole = True
    return report


class ScrubFile:
    """Where a pass stands, on disk: it takes days, and a gateway is restarted meanwhile."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Report:
        """The unfinished pass; a new one where there is none."""
        try:
            report = msgspec.json.decode(self._path.read_bytes(), type=Report)
        except (OSError, msgspec.DecodeError):
            return Report()
        return report

    def save(self, report: Report) -> None:
        replace_file(self._path, msgspec.json.encode(report))


# ------------------------------------------------------------------------------------------------ one record


async def _pages(store: ItemStore, after: str) -> AsyncIterator[list[str]]:
    page: list[str] = []
    async for each in store.objects.list("meta", after):
        page.append(each.key)
        if len(page) == PAGE:
            yield page
            page = []
    if page:
        yield page


async def _unindexed(store: ItemStore, page: list[str], report: Report) -> list[str]:
    """The keys of this page whose upload is not in the index."""
    asked: list[tuple[str, BucketEntry | None]] = []
    keys: list[str] = []
    for key in page:
        entry = None
        if not key.endswith(f".{PUBLIC}"):
            upload = await _upload(store, key, report)
            if upload is None:
                continue
            entry = BucketEntry(upload.bucket, upload.folder, upload.id, upload.name, upload.created_ms)
        keys.append(key)
        asked.append((id_of_meta(key), entry))
    return [key for key, is_there in zip(keys, await store.index.has_all(asked), strict=True) if not is_there]


async def _add(store: ItemStore, key: str, report: Report) -> None:
    upload, record = await _upload(store, key, report), await _record(store, key, report)
    if upload is not None and record is not None:
        await store.add_to_index(upload, record)
        report.added += 1


async def _upload(store: ItemStore, key: str, report: Report) -> UploadRecord | None:
    raw = await store.objects.read(key)
    try:
        return None if raw is None else decode_upload(raw, key)
    except Corrupt as fault:
        report.find(key, fault.message)
        return None


async def _record(store: ItemStore, key: str, report: Report) -> ItemRecord | None:
    try:
        record = await store.record_of(id_of_meta(key))
        if record is not None:
            record.parsed()
    except Corrupt as fault:
        report.find(item_key(id_of_meta(key)), fault.message)
        return None
    if record is None:
        report.find(item_key(id_of_meta(key)), "missing")
    return record


async def _check_item(store: ItemStore, id_: str, record: ItemRecord, verify: Verify, report: Report) -> None:
    """Every chunk by its hash, and the whole by its owner's signature."""
    header, hashed = record.parsed(), DataHash()
    try:
        async for piece in store.read(id_, record, 0, record.data_size):
            hashed.update(piece)
    except Corrupt as fault:
        report.find(data_key(id_), fault.message)
        return
    if header.id != id_ or not verify(header, hashed):
        report.find(item_key(id_), "the signature is not that of this item")


async def add_waiting(store: ItemStore) -> int:
    """Add uploads that the index failed to take; how many are left."""
    for upload in list(store.unindexed.values()):
        try:
            record = await store.record_of(upload.id)
            if record is not None:
                await store.add_to_index(upload, record)
        except (Unavailable, Corrupt) as fault:
            _log.warning("index_behind", waiting=len(store.unindexed), reason=fault.message)
            break
    return len(store.unindexed)
