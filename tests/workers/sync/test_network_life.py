"""Random lives of a network: crashes, reorgs, late, lost, forged and conflicting notices, an archive that lies.

Whatever happens, no node deletes a byte unless it stores a verified record for every blob of that height, metadata
survives everything, and a node that joins at the end gets every byte, from a node or from the archive, and checks it.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.counts import counts
from tests.workers.sync.conftest import Joined
from tests.workers.sync.sync_nodes import KEYS, OWNER, FollowerNode

from holdfast.core.archive.messages import VERIFIED
from holdfast.core.archive.notice import ArchiveNotice
from holdfast.core.base.values import Digest, Height
from holdfast.core.blob.model import Blob, BlobStatus
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.chain.model import final_height
from holdfast.core.sync.followed import BytesStatus
from holdfast.engine.queries.archive.stored_blobs import stored_blobs
from holdfast.ports.blobs import PackName
from holdfast.wire.peer_messages import encode_message
from holdfast.workers.archive.archiver import signed

T = TypeVar("T")
NAMES = ("ash", "elm")
RESEND_MS = 30_000


class NetworkLife(RuleBasedStateMachine):
    """A proposer and two followers; one of them is a validator."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp())
        self.joined = Joined(self.folder)
        self.known: dict[tuple[bytes, int], tuple[bytes, ...]] = {}
        """What was seen of each blob, by block hash and index: none of it may ever be gone or change."""
        self.outputs = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @property
    def proposer(self) -> Any:
        return self.joined.proposer

    @initialize()
    def start(self) -> None:
        async def begin() -> None:
            await self.proposer.open_with_provider()
            await self.proposer.add_blobs(b"the first makes a validator")
            await self.proposer.add_validators([KEYS[1]])
            for name, key in zip(NAMES, (KEYS[1], None), strict=True):
                self.joined.add(name, key)

        self.run(begin())

    # ------------------------------------------------------------------------------------ what happens

    @rule(size=st.sampled_from([5, 200_000]), seals=st.integers(0, 3))
    def resolve(self, size: int, seals: int) -> None:
        self.outputs += 1
        output = bytes([self.outputs % 251 + 1]) * size + b"%d" % self.outputs

        async def go() -> None:
            await self.proposer.heartbeat()
            await self.proposer.resolve_public(output, seals=1)
            await self.proposer.pack(seals=seals)

        self.run(go())

    @rule(times=st.integers(1, 3))
    def seal(self, times: int) -> None:
        async def go() -> None:
            await self.proposer.seal(times)
            await self.proposer.packer.run_once()

        self.run(go())

    @rule(back=st.integers(1, 2))
    def reorg(self, back: int) -> None:
        async def go() -> None:
            state = self.proposer.engine.undurable_state
            height = max(final_height(state), state.chain.head.height - back)
            await self.proposer.engine.submit(RollBackBlocks(Height(height)))
            await self.proposer.packer.run_once()

        self.run(go())

    @rule()
    def archive(self) -> None:
        async def go() -> None:
            self.proposer.pass_ms(RESEND_MS)
            await self.proposer.archive_now()

        self.run(go())

    @rule()
    def prune(self) -> None:
        self.run(self.proposer.pruner.run_once())

    @rule(name=st.sampled_from(NAMES))
    def follow(self, name: str) -> None:
        self.run(self.joined.followers[name].run())

    @rule(rounds=st.integers(1, 3))
    def deliver(self, rounds: int) -> None:
        self.run(self.joined.deliver(rounds))

    @rule(copies=st.integers(0, 2), delay=st.integers(0, 2), cut=st.sampled_from([None, *NAMES]))
    def disturb(self, copies: int, delay: int, cut: str | None) -> None:
        network = self.joined.network
        network.heal()
        network.copies, network.delay_rounds = copies, delay
        if cut is not None:
            network.partition([OWNER, *(name for name in NAMES if name != cut)], [cut])

    @rule(lie=st.sampled_from(["none", "gone", "short", "other"]))
    def lie(self, lie: str) -> None:
        lies: dict[str, Any] = {
            "none": lambda raw: raw,
            "gone": lambda _: None,
            "short": lambda raw: raw[:-1],
            "other": lambda raw: raw[:-1] + b"\1",
        }
        self.proposer.provider.lie = lies[lie]

    @rule()
    def crash_proposer(self) -> None:
        async def go() -> None:
            await self.proposer.kill()
            await self.proposer.open()

        self.run(go())

    @rule(key=st.integers(0, 1))
    def take_over(self, key: int) -> None:
        """The next owner may have the other validator's key."""
        self.run(self.proposer.take_over(KEYS[key]))

    @rule(name=st.sampled_from(NAMES))
    def crash_follower(self, name: str) -> None:
        async def go() -> None:
            follower = self.joined.followers[name]
            await follower.close()
            follower.open(self.joined.network, name)

        self.run(go())

    @rule(kind=st.sampled_from(["forged", "conflicting", "stranger", "early"]), data=st.data())
    def deceive(self, kind: str, data: st.DataObject) -> None:
        """Notices that must change nothing: with a wrong signature, or signed and not so."""
        records = self.records()
        notice = self.proposer.service.notice_of(data.draw(st.sampled_from(records))) if records else None
        if notice is None:
            return
        replace = msgspec.structs.replace
        makers: dict[str, Callable[[], ArchiveNotice]] = {
            "forged": lambda: replace(notice, locator="file:elsewhere/items/x", signature=bytes(64)),
            "conflicting": lambda: signed(replace(notice, blob_keccak=Digest(bytes(32))), KEYS[0]),
            "stranger": lambda: signed(replace(notice, locator="file:elsewhere/items/y"), KEYS[3]),
            "early": lambda: signed(replace(notice, height=Height(notice.height + 10_000)), KEYS[0]),
        }
        self.joined.network.post("stranger", encode_message(makers[kind]()))

    def records(self) -> list[Blob]:
        return [live.blob for live in self.proposer.lives if live.blob.status is BlobStatus.ARCHIVED]

    # ------------------------------------------------------------------------------------ what must hold

    @invariant()
    def no_byte_is_deleted_without_verified_records(self) -> None:
        if self.joined.followers:
            self.run(self._check_proposer())
            for node in self.joined.followers.values():
                self.run(self._check_follower(node))

    async def _check_proposer(self) -> None:
        state = self.proposer.engine.undurable_state
        for height in range(1, final_height(state) + 1):
            lives = await stored_blobs(self.proposer.engine, Height(height))
            blobs = [live.blob for live in lives]
            self._remember(blobs)
            for blob in blobs:
                pack = PackName(blob.height, blob.block_hash)
                raw = await self.proposer.files.read(pack, blob.number, blob.versioned_hash, blob.keccak)
                if raw is None:
                    assert all(each.status is BlobStatus.ARCHIVED for each in blobs), blobs
                    assert all(each.assurance == VERIFIED for each in blobs), blobs

    async def _check_follower(self, node: FollowerNode) -> None:
        for height in range(1, await node.height() + 1):
            blobs = await node.blobs(Height(height))
            self._remember(blobs)
            for blob in blobs:
                pack = PackName(blob.height, blob.block_hash)
                raw = await node.files.read(pack, blob.number, blob.versioned_hash, blob.keccak)
                if raw is None and blob.bytes_status is BytesStatus.ABSENT:
                    assert blob.notice  # it never was here: a validator vouches for it
                elif raw is None:
                    assert blob.bytes_status is BytesStatus.PRUNED
                    assert all(each.status is BlobStatus.ARCHIVED for each in blobs), blobs
                    assert all(each.assurance == VERIFIED for each in blobs), blobs

    def _remember(self, blobs: Any) -> None:
        """Every node says the same of a blob, for ever."""
        for blob in blobs:
            facts = (blob.versioned_hash, blob.commitment, blob.keccak, blob.proposer)
            assert self.known.setdefault((blob.block_hash, blob.number), facts) == facts

    def teardown(self) -> None:
        try:
            if self.joined.followers:
                self.run(self._join_at_the_end())
                self.run(self.joined.close())
        finally:
            self.loop.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    async def _join_at_the_end(self) -> None:
        """SYN-001: what is known of each blob is still there, and its bytes are somewhere and right."""
        self.joined.network.heal()
        self.proposer.provider.lie = lambda raw: raw
        late = self.joined.add("late")
        await late.follower.sync.run_once()
        assert await late.height() == await self.proposer.service.final_height()
        seen = set[tuple[bytes, int]]()
        for height in range(1, await late.height() + 1):
            for blob in await late.blobs(Height(height)):
                seen.add((blob.block_hash, blob.number))
                raw = await late.follower.blob(blob.height, blob.number)
                raw = raw or await self.proposer.provider.fetch(blob.locator)
                assert raw is not None
                assert (await self.proposer.kzg.commit(raw))[::2] == (blob.commitment, blob.keccak)
        assert self.known.keys() <= seen


TestNetworkLife = NetworkLife.TestCase
TestNetworkLife.settings = settings(max_examples=counts(12, 60), stateful_step_count=counts(25, 50), deadline=None)
TestNetworkLife = pytest.mark.rule("PRU-001", "NTC-002", "NTC-003", "SYN-001", "BLB-002")(TestNetworkLife)
