"""The archiver: an intent before the upload, one item whatever fails, records in order, nothing dropped (ARC-…)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.workers.archive.archive_node import ArchiveNode, archive_policy

from holdfast.adapters.keys.keccak import keccak_256
from holdfast.adapters.keys.signing import SigningKey, verify
from holdfast.core.archive.messages import SIGNED, VERIFIED, AcceptNotice, RetryUploads
from holdfast.core.archive.notice import ArchiveNotice, notice_root
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.base.values import ChainId
from holdfast.core.blob.framing import BLOB_BYTES
from holdfast.core.blob.model import Blob, BlobStatus
from holdfast.core.policy import DAY_MS, ReadBack
from holdfast.ports.blobs import ItemUpload
from holdfast.wire.ans104 import parse_header
from holdfast.workers.archive import archiver

LARGE = bytes(range(256)) * 1_500


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ArchiveNode]:
    node = ArchiveNode(archive_policy(), tmp_path)
    await node.open_with_provider()
    yield node
    await node.kill()


def blobs(node: ArchiveNode) -> list[Blob]:
    return [live.blob for live in node.lives]


def items(node: ArchiveNode) -> list[Path]:
    return sorted((node.folder / "archived" / "items").glob("*.ans104"))


@pytest.mark.rule("ARC-001", "ARC-002", "ARC-004", "NTC-001")
async def test_final_blobs_are_archived_as_signed_items_read_back_and_recorded(node: ArchiveNode) -> None:
    await node.resolve(LARGE, seals=1)
    await node.pack(seals=2)
    await node.archiver.run_once()
    assert node.provider.stores == []  # not final
    await node.seal()
    await node.archiver.run_once()
    assert {blob.status for blob in blobs(node)} == {BlobStatus.ARCHIVED}
    assert {blob.assurance for blob in blobs(node)} == {VERIFIED}
    assert len(items(node)) == 4
    for live in node.lives:
        blob = live.blob
        raw = (node.folder / "archived" / "items" / f"{blob.item_id}.ans104").read_bytes()
        header = parse_header(raw)
        assert not isinstance(header, Refused)
        assert (header.id, header.owner) == (blob.item_id, node.signer.public)
        tags = dict(header.tags)
        assert tags[b"height"] == tags[b"load.height"] == str(blob.height).encode()
        assert len(header.encode()) <= 2_048
        assert raw.endswith(await node.raw_blob(live))
        notice = ArchiveNotice(
            version=1,
            height=blob.height,
            blob_index=blob.number,
            kzg_commitment=blob.commitment,
            blob_keccak=blob.keccak,
            provider_id="file",
            locator=blob.locator,
            archived_by=keccak_256(node.signer.public)[:20],
            archived_at=blob.archived_at,
            chain_id=ChainId(1_337),
            versioned_hash=blob.versioned_hash,
        )
        assert verify(node.signer.public, notice_root(notice), blob.signature)
    assert (node.archiver.metrics.attempts_good, node.archiver.metrics.attempts_failed) == (4, 0)


@pytest.mark.rule("ARC-001")
async def test_another_nodes_height_is_not_archived_here(node: ArchiveNode) -> None:
    await node.resolve(b"out", seals=1)
    await node.pack_final()
    stranger = SigningKey.from_seed(b"\1" * 32)
    other = archiver.Archiver(node.engine, node.provider, node.files, node.kzg, stranger, verify, keccak_256)
    await other.run_once()
    assert (node.provider.stores, blobs(node)[0].attempts) == ([], 0)  # nothing of it is even tried
    node.archiver._signer = stranger  # it tries, and no intent is stored
    await node.archiver.run_once()
    assert (node.provider.stores, blobs(node)[0].status) == ([], BlobStatus.PENDING)


@pytest.mark.rule("ARC-002", "ARC-003")
async def test_an_upload_whose_answer_was_lost_makes_no_second_item(node: ArchiveNode) -> None:
    await node.resolve(b"out", seals=1)
    await node.pack_final()
    node.provider.faults_after = 1
    await node.archiver.run_once()
    (blob,) = blobs(node)
    assert (blob.status, blob.attempts) == (BlobStatus.PENDING, 1)
    intended = blob.archived_at
    await node.archiver.run_once()
    assert len(node.provider.stores) == 1  # it is not due yet
    await node.kill()
    await node.open()
    node.clock.wall += 10_000
    node.clock.monotonic += 10_000
    await node.archiver.run_once()
    (blob,) = blobs(node)
    assert (blob.status, blob.archived_at) == (BlobStatus.ARCHIVED, intended)
    assert len(set(node.provider.stores)) == len(items(node)) == 1


@pytest.mark.rule("ARC-003")
async def test_an_upload_that_always_fails_is_stalled_kept_and_retried_by_hand(tmp_path: Path) -> None:
    node = ArchiveNode(
        archive_policy(attempts_max=3, retry_base_ms=1, retry_cap_ms=2, stalled_retry_ms=10**9), tmp_path
    )
    await node.open_with_provider()
    await node.resolve(b"out", seals=1)
    await node.pack_final()
    node.provider.faults_before = 100
    for _ in range(10):
        node.clock.monotonic += 100
        await node.archiver.run_once()
    assert len(node.provider.stores) == 3
    assert (blobs(node)[0].attempts, blobs(node)[0].status) == (3, BlobStatus.PENDING)
    assert "simulated" in blobs(node)[0].reason
    node.provider.faults_before = 0
    await node.engine.submit(RetryUploads())
    await node.archiver.run_once()
    assert blobs(node)[0].status is BlobStatus.ARCHIVED
    await node.kill()


@pytest.mark.rule("ARC-003")
async def test_an_archive_that_cannot_be_opened_is_a_failed_upload_and_stalls_like_any_other(tmp_path: Path) -> None:
    node = ArchiveNode(archive_policy(attempts_max=2, retry_base_ms=1, retry_cap_ms=1), tmp_path)
    await node.open_with_provider()
    await node.resolve(b"out", seals=1)
    await node.pack_final()
    is_mounted = False

    async def open_() -> None:
        if not is_mounted:
            raise Unavailable("ARC-004", "the folder is not mounted")

    node.provider.open = open_  # type: ignore[method-assign]
    for _ in range(3):
        await node.archiver.run_once()
        node.clock.monotonic += 10
    assert (blobs(node)[0].attempts, "not mounted" in blobs(node)[0].reason) == (2, True)
    assert node.archiver.metrics.attempts_failed == 2
    is_mounted = True
    await node.engine.submit(RetryUploads())
    await node.archiver.run_once()
    assert blobs(node)[0].status is BlobStatus.ARCHIVED
    await node.kill()


@pytest.mark.rule("ARC-003")
async def test_a_refused_credential_stalls_at_once(node: ArchiveNode) -> None:
    await node.resolve(b"out", seals=1)
    await node.pack_final()
    node.provider.refusal = Refused("ARC-003", "unknown key")
    await node.archiver.run_once()
    assert blobs(node)[0].attempts == node.engine.policy.archive.attempts_max
    assert blobs(node)[0].retry_ms >= node.engine.now_ms() + node.engine.policy.archive.stalled_retry_ms - 1_000


@pytest.mark.rule("ARC-003")
async def test_receipts_of_a_height_are_recorded_in_their_order(node: ArchiveNode) -> None:
    await node.resolve(LARGE, seals=1)
    await node.pack_final()
    node.provider.faults_before, node.provider.fails_at = 1, "/1"
    await node.archiver.run_once()
    assert [blob.status for blob in blobs(node)] == [BlobStatus.ARCHIVED, *[BlobStatus.PENDING] * 3]
    node.clock.monotonic += 10_000
    await node.archiver.run_once()
    assert [blob.status for blob in blobs(node)] == [BlobStatus.ARCHIVED] * 4


@pytest.mark.rule("ARC-002", "ARC-003")
async def test_all_intents_of_a_group_are_stored_before_its_first_byte_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiver, "GROUP_MIN", 2)
    node = ArchiveNode(archive_policy(uploads_at_once_max=1), tmp_path)
    await node.open_with_provider()
    await node.resolve(LARGE, seals=1)
    await node.pack_final()
    intended: list[list[bool]] = []
    store = node.provider.store

    async def watched(item: ItemUpload) -> Refused | None:
        intended.append([bool(blob.item_id) for blob in blobs(node)])
        return await store(item)

    monkeypatch.setattr(node.provider, "store", watched)
    node.provider.faults_before, node.provider.fails_at = 1, "/3"
    await node.archiver.run_once()
    assert intended == [[True, True, False, False]] * 2 + [[True] * 4] * 2
    assert [blob.status for blob in blobs(node)] == [*[BlobStatus.ARCHIVED] * 3, BlobStatus.PENDING]
    assert (node.archiver.metrics.heights_good, node.archiver.metrics.heights_failed) == (0, 1)
    await node.kill()


@pytest.mark.rule("ARC-003", "OBS-001")
async def test_logs_name_what_was_archived_what_failed_and_what_is_stalled(tmp_path: Path) -> None:
    node = ArchiveNode(archive_policy(attempts_max=2, retry_base_ms=1, retry_cap_ms=1), tmp_path)
    await node.open_with_provider()
    await node.resolve(b"out", seals=1)
    await node.pack_final()
    node.provider.faults_before = 2
    with capture_logs() as logs:
        for _ in range(2):
            await node.archiver.run_once()
            node.clock.monotonic += 10
        await node.engine.submit(RetryUploads())
        await node.archiver.run_once()
    failed, stalled, done = (each for each in logs if "upload" in each["event"] or each["event"] == "blob_archived")
    (blob,) = blobs(node)
    place = (blob.height, 0)
    assert (failed["event"], failed["log_level"], failed["attempt"]) == ("upload_failed", "warning", 1)
    assert (stalled["event"], stalled["log_level"], stalled["attempt"]) == ("upload_stalled", "error", 2)
    assert "holdfast blob retry" in stalled["hint"]
    assert (done["event"], done["log_level"]) == ("blob_archived", "info")
    assert done["locator_hash"] == keccak_256(blob.locator.encode())[:8].hex()
    assert {(each["height"], each["index"]) for each in (failed, stalled, done)} == {place}
    await node.kill()


@pytest.mark.rule("ARC-003")
async def test_what_a_day_may_upload_delays_the_rest_until_tomorrow_and_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiver, "RETRY_S", 0)
    node = ArchiveNode(archive_policy(bytes_per_day_max=BLOB_BYTES + 1), tmp_path)
    await node.open_with_provider()
    for output in (b"first", b"second", b"third"):
        await node.resolve(output, seals=1)
        await node.pack_final()
    with capture_logs() as logs:
        running = asyncio.ensure_future(node.archiver.run())
        while sum(blob.status is BlobStatus.ARCHIVED for blob in blobs(node)) < 2:
            await asyncio.sleep(0)
        for _ in range(50):  # others get their turns meanwhile
            await asyncio.sleep(0)
        assert [blob.status for blob in blobs(node)] == [*[BlobStatus.ARCHIVED] * 2, BlobStatus.PENDING]
        assert [each["log_level"] for each in logs if each["event"] == "archive_delayed"] == ["warning"]
        node.clock.monotonic += DAY_MS
        while blobs(node)[2].status is not BlobStatus.ARCHIVED:
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await node.kill()


@pytest.mark.rule("ARC-001", "ARC-002")
async def test_while_one_height_is_uploaded_the_next_is_intended_and_uploads_stay_bounded(tmp_path: Path) -> None:
    node = ArchiveNode(archive_policy(uploads_at_once_max=1), tmp_path)
    await node.open_with_provider()
    for output in (LARGE, b"second", b"third", b"fourth"):
        await node.resolve(output, seals=1)
        await node.pack_final()
    store, may_store, running = node.provider.store, asyncio.Event(), list[int]()

    async def gated(item: ItemUpload) -> Refused | None:
        running.append(len(node.provider.stores))
        await may_store.wait()
        assert len(running) == len(node.provider.stores) + 1, "another upload began meanwhile"
        return await store(item)

    node.provider.store = gated  # type: ignore[method-assign]
    archiving = asyncio.ensure_future(node.archiver.run_once())
    while not running or sum(bool(blob.item_id) for blob in blobs(node)) < 6:
        await asyncio.sleep(0)
    assert [bool(blob.item_id) for blob in blobs(node)] == [*[True] * 6, False]  # two ahead of the one that is uploaded
    assert len(running) == 1
    may_store.set()
    await archiving
    assert {blob.status for blob in blobs(node)} == {BlobStatus.ARCHIVED}
    await node.kill()


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize("lie", [lambda _: None, lambda raw: raw[:-1], lambda raw: raw[:-1] + b"\1"])
async def test_an_archive_that_lies_is_found_out_before_anything_counts(node: ArchiveNode, lie: object) -> None:
    await node.resolve(b"out", seals=1)
    await node.pack_final()
    node.provider.lie = lie  # type: ignore[assignment]
    await node.archiver.run_once()
    await node.pruner.run_once()
    assert (blobs(node)[0].status, blobs(node)[0].attempts) == (BlobStatus.PENDING, 1)
    assert node.archiver.metrics.receipts_mismatched == 1
    assert len(node.packs) == 1


@pytest.mark.rule("ARC-004")
async def test_policy_may_trust_a_receipt_and_says_so_in_the_record(tmp_path: Path) -> None:
    node = ArchiveNode(archive_policy(read_back=ReadBack.NEVER), tmp_path)
    await node.open_with_provider()
    await node.resolve(b"out", seals=1)
    await node.pack_final()
    node.provider.lie = lambda _: None
    await node.archiver.run_once()
    assert (blobs(node)[0].status, blobs(node)[0].assurance) == (BlobStatus.ARCHIVED, SIGNED)
    await node.kill()


@pytest.mark.rule("NTC-002")
async def test_a_notice_of_the_archiver_is_no_change_the_second_time(node: ArchiveNode) -> None:
    await node.resolve(b"out", seals=1)
    await node.pack_final()
    await node.archiver.run_once()
    notice = node.archiver._sign(blobs(node)[0])
    last = node.engine.undurable_state.last_event
    outcome = await node.engine.submit(AcceptNotice(notice, verify, node.archiver._address_of, VERIFIED))
    assert not isinstance(outcome, Refused)
    assert outcome.is_repeat
    assert node.engine.undurable_state.last_event == last
