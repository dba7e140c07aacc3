"""Signatures of many notices: verified in groups elsewhere, taken in order, refused by the same names (NTC-002)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest
from structlog.testing import capture_logs
from tests.workers.sync.conftest import Joined
from tests.workers.sync.sync_nodes import KEYS, FollowerNode

from holdfast.adapters.keys.keccak import address_of
from holdfast.adapters.keys.signing import verify, verify_all
from holdfast.core.archive.messages import VERIFIED
from holdfast.core.archive.notice import ArchiveNotice
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.event import Command
from holdfast.core.base.values import Height
from holdfast.core.blob.model import Blob, BlobStatus
from holdfast.core.sync.followed import BytesStatus
from holdfast.engine.outcome import Outcome
from holdfast.ports.sync import SignedBytes
from holdfast.wire.peer_messages import encode_message
from holdfast.workers.archive.archiver import signed
from holdfast.workers.sync.owner_service import OwnerService
from holdfast.workers.sync.signature_groups import FEW, GROUP_MAX

MANY = 2 * GROUP_MAX + 5


class CountedSignatures:
    """Processes that verify, as a test sees them: how many signatures each call had, and when it may answer."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.is_away = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def verify_signatures(self, signed: Sequence[SignedBytes]) -> list[bool]:
        self.calls.append(len(signed))
        await self.may_answer.wait()
        if self.is_away:
            raise Unavailable("BLB-001", "simulated: the process ended")
        return verify_all(signed)


class VerifyHere:
    """Verification in the node's own process, counted."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, key: bytes, message: bytes, signature: bytes) -> bool:
        self.count += 1
        return verify(key, message, signature)


class WatchedFollower:
    """A follower that has the block, and how it verifies."""

    def __init__(self, node: FollowerNode, height: Height, notice: ArchiveNotice) -> None:
        self.node, self.height, self.notice = node, height, notice
        self.processes, self.here = node.signatures, node.verify
        assert isinstance(self.processes, CountedSignatures)
        assert isinstance(self.here, VerifyHere)
        self.here.count = 0

    def at(self, locator: str) -> ArchiveNotice:
        """The same blob elsewhere, signed by its proposer."""
        return signed(msgspec.structs.replace(self.notice, locator=locator), KEYS[0])

    async def receive(self, notices: Sequence[ArchiveNotice]) -> None:
        await self.node.follower.receive([encode_message(notice) for notice in notices])

    async def locators(self) -> list[str]:
        (blob,) = await self.node.blobs(self.height)
        return [blob.locator, *blob.alternates.splitlines()]


async def watched(joined: Joined) -> WatchedFollower:
    height = await joined.proposer.add_blobs()
    node = joined.add("ash", signatures=CountedSignatures(), verify=VerifyHere())
    await node.run()
    await joined.proposer.archiver.run_once()
    notice = joined.proposer.service.notice_of(joined.proposer.lives[0].blob)
    assert notice is not None
    return WatchedFollower(node, height, notice)


@pytest.mark.rule("NTC-002", "NTC-003")
async def test_many_notices_are_verified_elsewhere_in_groups_and_taken_in_their_order(joined: Joined) -> None:
    ash = await watched(joined)
    good = [ash.at(f"s3://bucket/{number}") for number in range(MANY)]
    forged = msgspec.structs.replace(good[9], locator="s3://bucket/forged")
    stranger = signed(msgspec.structs.replace(good[9], archived_by=address_of(KEYS[3].public)), KEYS[3])
    await ash.receive([*good[:FEW], forged, stranger, *good[FEW:]])
    assert await ash.locators() == [notice.locator for notice in good]
    assert ash.node.follower.metrics.failures == Counter(BadSignature=1, UnknownValidator=1)
    assert sum(ash.processes.calls) + ash.here.count == MANY + 1  # nobody verifies for a stranger
    assert max(ash.processes.calls) <= GROUP_MAX
    assert ash.here.count < FEW  # a group of few at the end


@pytest.mark.rule("NTC-002")
async def test_who_came_first_is_taken_first_however_long_its_signatures_take(joined: Joined) -> None:
    ash = await watched(joined)
    many, single = [ash.at(f"s3://bucket/{number}") for number in range(FEW)], ash.at("s3://bucket/later")
    ash.processes.may_answer.clear()
    first, second = (asyncio.ensure_future(ash.receive(each)) for each in (many, [single]))
    while not ash.processes.calls:
        await asyncio.sleep(0)
    assert not second.done()
    ash.processes.may_answer.set()
    await asyncio.gather(first, second)
    assert await ash.locators() == [notice.locator for notice in (*many, single)]


@pytest.mark.rule("NTC-002")
async def test_few_signatures_are_verified_here_and_so_are_many_when_the_processes_fail(joined: Joined) -> None:
    ash = await watched(joined)
    notices = [ash.at(f"s3://bucket/{number}") for number in range(FEW)]
    await ash.receive(notices[:-1])
    assert (ash.processes.calls, ash.here.count) == ([], FEW - 1)
    ash.processes.is_away = True
    forged = msgspec.structs.replace(notices[0], signature=bytes(64))
    with capture_logs() as logs:
        await ash.receive([*notices, forged])
    assert [each["event"] for each in logs] == ["signatures_verified_here", "notice_refused"]
    assert await ash.locators() == [notice.locator for notice in notices]
    assert ash.node.follower.metrics.failures == Counter(BadSignature=1)


@pytest.mark.rule("NTC-002", "NTC-004")
async def test_an_owner_takes_notices_in_one_batch_and_order(joined: Joined) -> None:
    ash = await watched(joined)
    processes, here, proposer = CountedSignatures(), VerifyHere(), joined.proposer
    submitted = list[int]()

    async def submit_many(commands: Sequence[Command]) -> list[Outcome]:
        submitted.append(len(commands))
        return await proposer.engine.submit_many(commands)

    service = OwnerService(
        proposer.engine,
        proposer.files,
        here,
        address_of,
        submit_many,
        proposer.metrics,
        processes,
    )
    notices = [ash.at(f"s3://bucket/{number}") for number in range(FEW)]
    forged = msgspec.structs.replace(notices[3], signature=bytes(64))
    await service.receive([encode_message(each) for each in (*notices, forged)])
    blob: Blob = proposer.lives[0].blob
    assert blob.alternates.splitlines() == [notice.locator for notice in notices]
    assert (submitted, processes.calls, here.count) == ([FEW + 1], [FEW + 1], 0)
    assert proposer.metrics.failures == Counter(BadSignature=1)


@pytest.mark.rule("SYN-001")
async def test_the_notices_of_an_archived_block_are_verified_together(joined: Joined) -> None:
    proposer = joined.proposer
    height = await proposer.add_blobs(bytes(FEW * 127_000))
    await proposer.archive_now()
    await proposer.pruner.run_once()
    node = joined.add("late", signatures=CountedSignatures(), verify=VerifyHere())
    await node.run()
    blobs = await node.blobs(height)
    assert {blob.bytes_status for blob in blobs} == {BytesStatus.ABSENT}
    assert node.signatures.calls == [len(blobs)]
    assert node.verify.count == await node.height()  # headers alone


@pytest.mark.rule("NTC-003", "PRU-001")
async def test_a_notice_that_comes_while_the_archive_is_read_back_is_not_lost(joined: Joined) -> None:
    ash = await watched(joined)
    await ash.receive([ash.notice])
    archive = joined.proposer.provider

    class ToldMeanwhile:
        """Another notice arrives before the archive answers."""

        id = archive.id
        open, find, close = archive.open, archive.find, archive.close

        async def fetch(self, locator: str) -> bytes | None:
            await ash.receive([ash.at("s3://bucket/meanwhile")])
            return await archive.fetch(locator)

    ash.node.follower.pruner._archive = ToldMeanwhile()
    await ash.node.follower.pruner.run_once()
    (blob,) = await ash.node.blobs(ash.height)
    assert (blob.status, blob.assurance, blob.bytes_status) == (BlobStatus.ARCHIVED, VERIFIED, BytesStatus.PRUNED)
    assert blob.alternates == "s3://bucket/meanwhile"
