"""A follower's life: it syncs, takes notices, reads back, prunes, joins late, and serves others (SYN-001, SYN-002)."""

from __future__ import annotations

import pytest
from tests.workers.archive.archive_node import KEY
from tests.workers.sync.conftest import Joined
from tests.workers.sync.sync_nodes import KEYS, OWNER

from holdfast.adapters.sql.named_queries import queries
from holdfast.core.archive.messages import SIGNED, VERIFIED
from holdfast.core.base.values import Height
from holdfast.core.blob.framing import read_frame, unpack_payload
from holdfast.core.blob.model import BlobStatus
from holdfast.core.sync.followed import BytesStatus
from holdfast.core.sync.package import PackageKind, decode_leaf
from holdfast.wire.packages import decode_package
from holdfast.workers.archive.archiver import Archiver

LARGE = bytes(range(256)) * 1_500


@pytest.mark.rule("SYN-001", "PRU-001")
async def test_a_follower_has_the_bytes_until_they_are_archived_and_read_back(joined: Joined) -> None:
    proposer, follower = joined.proposer, joined.add("ash")
    height = await proposer.add_blobs(LARGE)
    await follower.run()
    assert await follower.height() == await proposer.service.final_height() >= height
    blobs = await follower.blobs(height)
    assert {(blob.bytes_status, blob.status) for blob in blobs} == {(BytesStatus.HERE, BlobStatus.PENDING)}
    assert len(follower.packs) == 1
    for live, blob in zip(proposer.lives, blobs, strict=True):
        assert await follower.follower.blob(height, blob.number) == await proposer.raw_blob(live)
    await proposer.archive_now()
    await joined.deliver()
    assert {blob.assurance for blob in await follower.blobs(height)} == {SIGNED}
    await follower.run()
    blobs = await follower.blobs(height)
    assert {(blob.bytes_status, blob.assurance) for blob in blobs} == {(BytesStatus.PRUNED, VERIFIED)}
    assert follower.packs == []
    assert await follower.follower.blob(height, 0) is None


@pytest.mark.rule("PRU-001")
async def test_a_follower_keeps_bytes_for_as_many_blocks_as_policy_says(joined: Joined) -> None:
    proposer, follower = joined.proposer, joined.add("ash", retain_blocks=4)
    height = await proposer.add_blobs()
    await follower.run()
    await proposer.archive_now()
    await joined.deliver()
    while await follower.height() < height + 3:
        await proposer.seal()
        await follower.run()
    assert len(follower.packs) == 1
    await proposer.seal()
    await follower.run()
    assert (await follower.height(), follower.packs) == (height + 4, [])


@pytest.mark.rule("SYN-001", "SYN-002")
async def test_who_joins_late_gets_receipts_and_reports_these_heights_as_absent(joined: Joined) -> None:
    proposer = joined.proposer
    pruned = await proposer.add_blobs(b"first")
    await proposer.archive_now()
    await proposer.pruner.run_once()
    hot = await proposer.add_blobs(b"second")
    follower = joined.add("late")
    await follower.run()
    (old,), (new,) = await follower.blobs(pruned), await follower.blobs(hot)
    assert (old.bytes_status, old.status, old.assurance, old.proof) == (
        BytesStatus.ABSENT,
        BlobStatus.ARCHIVED,
        SIGNED,
        b"",
    )
    assert (new.bytes_status, new.status) == (BytesStatus.HERE, BlobStatus.PENDING)
    third = joined.add("later")  # from a follower alone: it serves what it was served
    joined.network.leave(OWNER)
    await third.run()
    assert await third.blobs(pruned) == [old]
    assert (await third.blobs(hot))[0].bytes_status is BytesStatus.HERE


@pytest.mark.rule("SYN-001", "BLB-003")
async def test_a_third_node_reconstructs_bytes_from_the_archive_by_what_a_follower_knows(joined: Joined) -> None:
    proposer = joined.proposer
    public, private = await proposer.resolve_public(b"told"), await proposer.resolve(b"secret", seals=1)
    await proposer.pack_final()
    await proposer.archive_now()
    await proposer.pruner.run_once()
    follower = joined.add("late")
    await follower.run()
    frames = dict[bytes, bytes]()
    for height in range(1, await follower.height() + 1):
        block = await follower.store.block(Height(height))
        assert block is not None
        for blob, leaf in zip(await follower.blobs(Height(height)), block[1].blobs, strict=True):
            raw = await proposer.provider.fetch(blob.locator)
            assert raw is not None
            assert (await proposer.kzg.commit(raw))[::2] == (blob.commitment, blob.keccak)
            for part in decode_leaf(leaf).parts:
                piece = unpack_payload(raw)[part.offset : part.offset + part.length]
                frames[part.task_id] = frames.get(part.task_id, b"") + piece
    header, body = read_frame(frames[public])
    assert (header.is_encrypted, body) == (False, b"told")
    header, body = read_frame(frames[private])
    assert b"secret" not in body  # only ciphertext of private bytes left the node
    assert KEY.decrypt(private, header.result_digest, body) == b"secret"


@pytest.mark.rule("NTC-003")
async def test_a_notice_that_is_early_waits_and_one_too_many_is_refused(joined: Joined) -> None:
    proposer = joined.proposer
    follower = joined.add("ash", notices_waiting_max=3)
    height = await proposer.add_blobs(LARGE)
    await proposer.archive_now()
    await joined.deliver()
    assert len(follower.follower.book.early) == 3
    assert follower.follower.metrics.failures == {"BufferFull": 1}
    await follower.follower.sync.run_once()
    await follower.follower.book.take_early()
    statuses = [blob.status for blob in await follower.blobs(height)]
    assert statuses == [*[BlobStatus.ARCHIVED] * 3, BlobStatus.PENDING]
    assert follower.follower.book.early == {}
    await follower.follower.book.ask_peers()  # what did not fit is asked for
    assert (await follower.blobs(height))[3].status is BlobStatus.ARCHIVED


@pytest.mark.rule("NTC-004", "ARC-004")
async def test_whoever_missed_the_notices_finds_the_items_and_a_hit_alone_never_prunes(joined: Joined) -> None:
    proposer, follower = joined.proposer, joined.add("ash")
    height = await proposer.add_blobs()
    await follower.run()
    await proposer.archiver.run_once()
    joined.network.partition([OWNER], ["ash"])
    proposer.provider.lie = lambda raw: raw[:-1] + b"\1"
    await follower.run()
    assert (await follower.blobs(height))[0].status is BlobStatus.PENDING
    proposer.provider.lie = lambda raw: raw
    await follower.run()
    (blob,) = await follower.blobs(height)
    assert (blob.status, blob.assurance, blob.notice, blob.bytes_status) == (
        BlobStatus.ARCHIVED,
        VERIFIED,
        b"",
        BytesStatus.PRUNED,
    )
    assert follower.follower.metrics.found_in_archive == 1
    kind = decode_package(await follower.follower.package(height) or b"")
    assert kind.kind is PackageKind.METADATA_ONLY  # type: ignore[union-attr]  # without a notice it vouches for nothing


@pytest.mark.rule("NTC-004", "PRU-001")
async def test_trusting_receipts_prunes_at_a_hit_and_loses_what_a_lying_archive_loses(joined: Joined) -> None:
    proposer, follower = joined.proposer, joined.add("ash", trust_receipts=True)
    height = await proposer.add_blobs()
    await follower.run()
    await proposer.archiver.run_once()
    joined.network.partition([OWNER], ["ash"])
    proposer.provider.lie = lambda _: None
    await follower.run()
    (blob,) = await follower.blobs(height)
    assert (blob.assurance, blob.bytes_status) == (SIGNED, BytesStatus.PRUNED)


@pytest.mark.rule("PRU-001", "ARC-004")
async def test_a_record_that_the_archive_cannot_show_is_suspect_and_its_bytes_stay(joined: Joined) -> None:
    proposer, follower = joined.proposer, joined.add("ash")
    height = await proposer.add_blobs()
    await follower.run()
    await proposer.archive_now()
    await joined.deliver()
    proposer.provider.lie = lambda _: None
    await follower.run()
    (blob,) = await follower.blobs(height)
    assert (blob.status, blob.bytes_status) == (BlobStatus.SUSPECT, BytesStatus.HERE)
    assert (len(follower.packs), follower.follower.metrics.suspect) == (1, 1)
    proposer.provider.lie = lambda raw: raw
    await follower.run()
    await follower.run()
    assert (await follower.blobs(height))[0].bytes_status is BytesStatus.PRUNED


@pytest.mark.rule("PRU-001", "NTC-002")
async def test_without_an_archive_to_ask_and_with_damaged_bytes_nothing_is_deleted(joined: Joined) -> None:
    proposer = joined.proposer
    blind, damaged = joined.add("blind", reads_back=False), joined.add("damaged")
    height = await proposer.add_blobs()
    await blind.run()
    await damaged.run()
    pack = damaged.folder / "blobs" / "packs" / damaged.packs[0]
    pack.write_bytes(b"\1" + pack.read_bytes()[1:])
    await proposer.archive_now()
    await joined.deliver()
    await blind.run()
    await damaged.run()
    assert (len(blind.packs), len(damaged.packs)) == (1, 1)
    assert damaged.follower.metrics.prune_failures == 1
    assert await damaged.follower.blob(height, 0) is None  # damaged bytes are given to nobody
    assert {blob.bytes_status for blob in await blind.blobs(height)} == {BytesStatus.HERE}


@pytest.mark.rule("SYN-001", "PRU-001")
async def test_a_follower_that_was_killed_goes_on_where_it_was(joined: Joined) -> None:
    proposer, follower = joined.proposer, joined.add("ash")
    height = await proposer.add_blobs()
    await follower.run()
    await follower.close()
    follower.open(joined.network, "ash")
    assert await follower.height() == await proposer.service.final_height()
    await proposer.archive_now()
    await joined.deliver()
    follower.files.delete_pack = _die  # type: ignore[method-assign, assignment]
    with pytest.raises(RuntimeError):
        await follower.run()
    assert (len(follower.packs), (await follower.blobs(height))[0].bytes_status) == (1, BytesStatus.PRUNED)
    del follower.files.delete_pack
    await follower.close()
    follower.open(joined.network, "ash")
    await follower.run()
    assert follower.packs == []


async def _die(*_: object) -> bool:
    raise RuntimeError("killed")


@pytest.mark.rule("NTC-005", "SYN-001")
async def test_who_joins_after_a_takeover_believes_what_the_new_owner_archived_of_the_old_heights(
    joined: Joined,
) -> None:
    proposer = joined.proposer
    height = await proposer.add_blobs()
    await proposer.add_validators([KEYS[1]])
    await proposer.take_over(KEYS[1])
    await proposer.archive_now()
    assert proposer.lives[0].blob.status is BlobStatus.ARCHIVED
    await proposer.pruner.run_once()
    await proposer.seal(3)
    follower = joined.add("late")
    await follower.run()
    assert await follower.height() == await proposer.service.final_height()
    (blob,) = await follower.blobs(height)
    assert (blob.bytes_status, blob.proposer, blob.archived_by) == (
        BytesStatus.ABSENT,
        KEYS[0].public,
        proposer.archiver._address_of(KEYS[1].public),
    )
    assert isinstance(proposer.archiver, Archiver)


@pytest.mark.rule("BLB-002")
def test_no_statement_of_a_follower_deletes_a_row() -> None:
    assert not any("DELETE" in text.upper() or "DROP" in text.upper() for text in queries("follower").values())


@pytest.mark.rule("NTC-004")
async def test_the_archive_is_not_asked_for_missing_items_all_the_time(joined: Joined) -> None:
    proposer, follower = joined.proposer, joined.add("ash")
    follower.find_every = 3
    await follower.close()
    follower.open(joined.network, "ash")
    await proposer.add_blobs()
    asked = list[str]()

    async def find(place: str, _: object) -> list[str]:
        asked.append(place)
        return []

    proposer.provider.find = find  # type: ignore[method-assign, assignment]
    for expected in (1, 1, 1, 2, 2):
        await follower.run()
        assert len(asked) == expected
