"""What the node that folds the journal offers to its peers (SYN-001): final blocks as packages, blobs, notices.

Blobs of private jobs are ciphertext (BLB-003): nothing else leaves the node here.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Sequence

import structlog

from holdfast.core.archive.check_notice import CONFLICTS
from holdfast.core.archive.messages import AcceptNotice, ConfirmNotice
from holdfast.core.archive.notice import ArchiveNotice, notice_root
from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.event import Command
from holdfast.core.base.values import ChainId, Height, VerifySignature
from holdfast.core.blob.apply import content_of
from holdfast.core.blob.model import Blob, BlobStatus, LiveBlob, blob_leaf, place_of
from holdfast.core.chain.model import Block, signed_of
from holdfast.core.sync.package import (
    ArchivedBlob,
    ArchiveReceipt,
    BlobSidecar,
    BlockPackage,
    BlockPayload,
    PackageKind,
)
from holdfast.core.validator.model import AddressOf
from holdfast.engine import queries
from holdfast.engine.outcome import Outcome
from holdfast.engine.proofs import block_transactions
from holdfast.engine.queries.archive.stored_blobs import stored_blobs
from holdfast.engine.queries.archive.validators import GetValidatorSet
from holdfast.engine.queries.chain import GetChainHead
from holdfast.ports.blobs import BlobFiles, PackName
from holdfast.ports.sync import Signatures
from holdfast.wire.notices import encode_notice
from holdfast.wire.packages import encode_package
from holdfast.wire.peer_messages import NoticeConfirmation, decode_message
from holdfast.workers.sync.signature_groups import PeerMessage, SignatureGroups, take_in_groups
from holdfast.workers.sync.sync_metrics import SyncMetrics

SubmitMany = Callable[[Sequence[Command]], Awaitable[list[Outcome]]]
_log = structlog.get_logger()


class OwnerService:
    """A peer that has the journal. A standby has no `submit_many`: it takes no messages."""

    def __init__(
        self,
        source: queries.ReadSource,
        files: BlobFiles,
        verify: VerifySignature,
        address_of: AddressOf,
        submit_many: SubmitMany | None,
        metrics: SyncMetrics,
        signatures: Signatures | None = None,
    ) -> None:
        self._source, self._files, self._submit_many = source, files, submit_many
        self._signatures = SignatureGroups(signatures, verify, address_of)
        self._verify, self._address_of, self._metrics = verify, address_of, metrics
        self._sent_s: dict[bytes, float] = {}
        """When the notice about a blob was sent first, by its place."""

    async def final_height(self) -> Height:
        return (await self._source.query_durable(GetChainHead())).finalized

    async def blob(self, height: Height, number: int) -> bytes | None:
        lives = await stored_blobs(self._source, height)
        return await self._read(lives[number].blob) if 0 <= number < len(lives) else None

    async def notices(self, height: Height) -> list[bytes]:
        lives = await stored_blobs(self._source, height)
        found = [self.notice_of(live.blob) for live in lives]
        return [encode_notice(notice) for notice in found if notice is not None]

    async def package(self, height: Height) -> bytes | None:
        """Full where all bytes are here, else Archived where every notice is, else its header alone."""
        if not 1 <= height <= await self.final_height():
            return None
        block = await queries.block(self._source, height)
        payload = None if block is None else await self._payload(block)
        if block is None or payload is None:
            return None
        lives = await stored_blobs(self._source, height) if block.blob_count else []
        whole = BlockPayload(
            payload.transactions, payload.results, tuple(blob_leaf(content_of(live)) for live in lives)
        )
        signed = signed_of(block, ChainId(self._source.policy.chain_id))
        raws = [await self._read(live.blob) for live in lives]
        if None not in raws:
            pairs = zip(raws, lives, strict=True)
            sidecars = tuple(BlobSidecar(raw or b"", live.blob.proof) for raw, live in pairs)
            package = BlockPackage(kind=PackageKind.FULL, signed=signed, payload=whole, sidecars=sidecars)
        elif (archived := self._receipts(lives)) is not None:
            package = BlockPackage(kind=PackageKind.ARCHIVED, signed=signed, payload=whole, archived=archived)
        else:
            package = BlockPackage(kind=PackageKind.METADATA_ONLY, signed=signed)
        return encode_package(package)

    async def _payload(self, block: Block) -> BlockPayload | None:
        """None where the events of the block are not stored any more."""
        transactions = await block_transactions(self._source.journal, block)
        if isinstance(transactions, Refused):
            return None
        first = block.log_size - block.result_count
        results = await queries.leaves(self._source, first, block.result_count)
        return BlockPayload(tuple(leaf for _, leaf in transactions), tuple(results))

    def _receipts(self, lives: Sequence[LiveBlob]) -> tuple[ArchivedBlob, ...] | None:
        notices = [self.notice_of(live.blob) for live in lives]
        archived = [ArchivedBlob(ArchiveReceipt(each.locator, each.provider_id), each) for each in notices if each]
        return tuple(archived) if len(archived) == len(lives) else None

    async def _read(self, blob: Blob) -> bytes | None:
        if blob.is_pruned:
            return None
        try:
            pack = PackName(blob.height, blob.block_hash)
            return await self._files.read(pack, blob.number, blob.versioned_hash, blob.keccak)
        except Corrupt as fault:
            _log.error("blob_damaged", height=blob.height, index=blob.number, reason=str(fault))
            return None

    def notice_of(self, blob: Blob) -> ArchiveNotice | None:
        """The notice that a record was made from, in the version that its signature is of."""
        if blob.status is not BlobStatus.ARCHIVED or not blob.signature:
            return None
        key = self._source.query_undurable(GetValidatorSet()).key_at(blob.height, blob.archived_by, self._address_of)
        for version in (1, 0):
            notice = _notice(blob, version, self._source.policy.chain_id)
            if key is not None and self._verify(key, notice_root(notice), blob.signature):
                return notice
        return None

    # ------------------------------------------------------------------------------------ what peers tell

    async def receive(self, messages: Sequence[bytes]) -> None:
        """NTC-002, NTC-004: a notice is checked and recorded, a confirmation counted; the rest is refused by name."""
        await take_in_groups(messages, self._take_group)

    async def _take_group(self, raws: Sequence[bytes]) -> None:
        decoded = [decode_message(raw) for raw in raws]
        for each in decoded:
            if isinstance(each, Refused):
                self._refuse(each)
        good = [each for each in decoded if not isinstance(each, Refused)]
        if good and self._submit_many is not None:
            await self._take(good, self._submit_many)

    async def _take(self, messages: Sequence[PeerMessage], submit_many: SubmitMany) -> None:
        """All of them in one batch, in their order."""
        validators = self._source.query_undurable(GetValidatorSet())
        async with self._signatures.in_order(validators, messages) as verify:
            outcomes = await submit_many([self._command(each, verify) for each in messages])
        for message, outcome in zip(messages, outcomes, strict=True):
            if isinstance(message, NoticeConfirmation):
                self._measure_propagation(place_of(message.height, message.number), outcome)
            if isinstance(outcome, Refused):
                self._refuse(outcome)

    def _command(self, message: PeerMessage, verify: VerifySignature) -> Command:
        if isinstance(message, ArchiveNotice):
            return AcceptNotice(message, verify, self._address_of)
        fields = (message.height, message.number, message.root, message.key, message.signature)
        return ConfirmNotice(*fields, verify=verify)

    def _refuse(self, refusal: Refused) -> None:
        self._metrics.failures[refusal.name] += 1
        is_conflict = refusal.name in CONFLICTS
        self._metrics.conflicts += is_conflict
        log = _log.error if is_conflict else _log.warning
        log("notice_conflict" if is_conflict else "notice_refused", reason=str(refusal), name=refusal.name)

    def record_sent(self, place: bytes) -> None:
        """A notice is on its way; only the first time counts."""
        self._sent_s.setdefault(place, time.monotonic())

    def forget_sent(self, except_: Collection[bytes]) -> None:
        """All but those that some validator still has to confirm."""
        self._sent_s = {place: sent_s for place, sent_s in self._sent_s.items() if place in except_}

    def _measure_propagation(self, place: bytes, outcome: Outcome) -> None:
        if not isinstance(outcome, Refused) and not outcome.is_repeat and place in self._sent_s:
            self._metrics.propagation_ms.add(int((time.monotonic() - self._sent_s[place]) * 1_000))


def _notice(blob: Blob, version: int, chain_id: int) -> ArchiveNotice:
    return ArchiveNotice(
        version=version,
        height=blob.height,
        blob_index=blob.number,
        kzg_commitment=blob.commitment,
        blob_keccak=blob.keccak,
        provider_id=blob.provider_id,
        locator=blob.locator,
        archived_by=blob.archived_by,
        archived_at=blob.archived_at,
        chain_id=ChainId(chain_id if version else 0),
        versioned_hash=blob.versioned_hash if version else b"",
        signature=blob.signature,
    )
