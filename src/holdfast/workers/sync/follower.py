"""A blob follower (SYN-001): syncs blocks, takes notices, prunes, and serves what it has to others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.values import ChainId, Height, Network, VerifySignature
from holdfast.core.policy import ArchivePolicy
from holdfast.core.sync.followed import BytesStatus, FollowedBlob
from holdfast.core.sync.package import ArchivedBlob, ArchiveReceipt, BlobSidecar, BlockPackage, PackageKind
from holdfast.core.validator.model import AddressOf
from holdfast.ports import Signer
from holdfast.ports.blobs import ArchiveReader, BlobFiles, Kzg, PackName
from holdfast.ports.sync import FollowerStore, Peers, Signatures
from holdfast.wire.notices import decode_notice
from holdfast.wire.packages import encode_package
from holdfast.workers.sync.block_sync import BlockSync
from holdfast.workers.sync.follower_chain import FollowerChain
from holdfast.workers.sync.follower_pruner import FIND_EVERY, FollowerPruner
from holdfast.workers.sync.notice_book import NoticeBook
from holdfast.workers.sync.signature_groups import SignatureGroups
from holdfast.workers.sync.sync_metrics import SyncMetrics

ASK_EVERY: Final = 5
"""Peers are asked for missing notices in every fifth run."""


class FollowerParts(NamedTuple):
    """What a follower is made of."""

    store: FollowerStore
    files: BlobFiles
    kzg: Kzg
    archive: ArchiveReader | None
    signer: Signer | None
    """A validator's key: with it, notices are confirmed."""
    verify: VerifySignature
    address_of: AddressOf
    signatures: Signatures | None = None
    """Processes that verify signatures; without them they are verified here."""


class FollowerTrust(NamedTuple):
    """What an operator tells a follower: which chain, and whose signatures count at its beginning."""

    chain_id: ChainId
    network: Network
    keys: Sequence[bytes]


class BlobFollower:
    """All of it as one worker, and a peer to others."""

    starts_at_once = True
    interval_ms = 1_000

    def __init__(
        self, parts: FollowerParts, trust: FollowerTrust, policy: ArchivePolicy, *, find_every: int = FIND_EVERY
    ) -> None:
        self._parts, self._trust, self._policy, self._find_every = parts, trust, policy, find_every
        self._runs = 0
        self.metrics = SyncMetrics()
        self.chain = FollowerChain(parts.store, trust.chain_id, trust.network, trust.keys)
        self.sync: BlockSync
        self.book: NoticeBook
        self.pruner: FollowerPruner

    def connect(self, peers: Peers) -> None:
        """Before the first run: whom to ask."""
        parts, chain, metrics = self._parts, self.chain, self.metrics
        signatures = SignatureGroups(parts.signatures, parts.verify, parts.address_of)
        self.sync = BlockSync(chain, peers, parts.files, parts.kzg, parts.verify, parts.address_of, signatures, metrics)
        self.book = NoticeBook(chain, peers, self._policy, parts.signer, signatures, parts.address_of, metrics)
        self.pruner = FollowerPruner(
            chain, parts.files, parts.kzg, parts.archive, self._policy, metrics, self._find_every
        )

    async def run_once(self) -> None:
        await self.sync.run_once()
        await self.book.take_early()
        if self._runs % min(ASK_EVERY, self._find_every) == 0:
            await self.book.ask_peers()
        self._runs += 1
        await self.pruner.run_once()

    # ------------------------------------------------------------------------------------ as a peer

    async def final_height(self) -> Height:
        return (await self.chain.get()).head.header.height

    async def receive(self, messages: Sequence[bytes]) -> None:
        await self.book.receive(messages)

    async def blob(self, height: Height, number: int) -> bytes | None:
        blobs = await self._parts.store.blobs(height)
        return await self._read(blobs[number]) if 0 <= number < len(blobs) else None

    async def notices(self, height: Height) -> list[bytes]:
        return [blob.notice for blob in await self._parts.store.blobs(height) if blob.notice]

    async def package(self, height: Height) -> bytes | None:
        """Full where all bytes are here, else Archived where every notice is, else its header alone."""
        found = await self._parts.store.block(height)
        if found is None:
            return None
        signed, payload = found
        blobs = await self._parts.store.blobs(height)
        raws = [await self._read(blob) for blob in blobs]
        if None not in raws:
            sidecars = tuple(BlobSidecar(raw or b"", blob.proof) for raw, blob in zip(raws, blobs, strict=True))
            full = BlockPackage(kind=PackageKind.FULL, signed=signed, payload=payload, sidecars=sidecars)
            return encode_package(full)
        if not all(blob.notice for blob in blobs):
            return encode_package(BlockPackage(kind=PackageKind.METADATA_ONLY, signed=signed))
        archived = tuple(_archived(blob) for blob in blobs)
        return encode_package(
            BlockPackage(kind=PackageKind.ARCHIVED, signed=signed, payload=payload, archived=archived)
        )

    async def _read(self, blob: FollowedBlob) -> bytes | None:
        if blob.bytes_status is not BytesStatus.HERE:
            return None
        try:
            pack = PackName(blob.height, blob.block_hash)
            return await self._parts.files.read(pack, blob.number, blob.versioned_hash, blob.keccak)
        except Corrupt:
            return None  # the pruner says so; a peer is never given damaged bytes


def _archived(blob: FollowedBlob) -> ArchivedBlob:
    notice = decode_notice(blob.notice)
    assert not isinstance(notice, Refused), "it was decoded before it was stored"
    return ArchivedBlob(ArchiveReceipt(notice.locator, notice.provider_id), notice)
