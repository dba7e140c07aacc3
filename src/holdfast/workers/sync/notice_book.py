"""Notices as a follower takes them (NTC-002, NTC-003): checked in order, early ones kept, conflicts told, confirmed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from holdfast.core.archive.check_notice import CONFLICTS, NOT_DECIDED, BlobFacts, NoticeGround, why_not_notice
from holdfast.core.archive.confirm import ack_root
from holdfast.core.archive.messages import SIGNED
from holdfast.core.archive.notice import ArchiveNotice, notice_root
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.base.records import record_from
from holdfast.core.base.values import Height, VerifySignature
from holdfast.core.policy import ArchivePolicy
from holdfast.core.sync.followed import FollowedBlob, FollowedChain, with_notice
from holdfast.core.validator.model import AddressOf
from holdfast.ports import Signer
from holdfast.ports.sync import Peers
from holdfast.wire.notices import decode_notice, encode_notice
from holdfast.wire.peer_messages import NoticeConfirmation, decode_message, encode_message
from holdfast.workers.sync.follower_chain import FollowerChain
from holdfast.workers.sync.signature_groups import SignatureGroups, take_in_groups
from holdfast.workers.sync.sync_metrics import SyncMetrics

ASKED_MAX: Final = 64
"""Heights without a record that peers are asked about in one run."""
_log = structlog.get_logger()


class NoticeBook:
    """Stores what counts, keeps what is early, and tells who has signed it that it arrived."""

    def __init__(
        self,
        chain: FollowerChain,
        peers: Peers,
        policy: ArchivePolicy,
        signer: Signer | None,
        signatures: SignatureGroups,
        address_of: AddressOf,
        metrics: SyncMetrics,
    ) -> None:
        self._chain, self._peers, self._policy, self._signer = chain, peers, policy, signer
        self._signatures, self._address_of, self._metrics = signatures, address_of, metrics
        self._asked = Height(0)
        self.early: dict[bytes, ArchiveNotice] = {}
        """Notices of heights that are not here yet, by their roots."""

    async def receive(self, messages: Sequence[bytes]) -> None:
        """NTC-002: whatever is wrong is counted by its name."""
        await self._chain.get()
        await take_in_groups(messages, lambda group: self._take_decoded(map(decode_message, group)))

    async def take_early(self) -> None:
        """Look again at the notices that were too early."""
        known = await self._chain.get()
        due = [root for root, notice in self.early.items() if notice.height <= known.head.header.height]
        await self._take([self.early.pop(root) for root in due])

    async def ask_peers(self) -> None:
        """NTC-004: heights whose bytes are here without a record, asked for one after the other, some in a run."""
        heights = await self._chain.store.heights_here(self._asked, ASKED_MAX)
        self._asked = heights[-1] if len(heights) == ASKED_MAX else Height(0)
        for height in heights:
            if all(blob.notice for blob in await self._chain.store.blobs(height)):
                continue
            for peer in self._peers.names():
                try:
                    raws = await self._peers.notices(peer, height)
                except Unavailable:
                    continue
                await take_in_groups(raws, lambda group: self._take_decoded(map(decode_notice, group)))

    async def _take_decoded(self, decoded: Iterable[ArchiveNotice | NoticeConfirmation | Refused]) -> None:
        """Confirmations are for whoever has signed the notice."""
        notices = list[ArchiveNotice]()
        for each in decoded:
            if isinstance(each, Refused):
                self._refuse(each)
            elif isinstance(each, ArchiveNotice):
                notices.append(each)
        await self._take(notices)

    async def _take(self, notices: Sequence[ArchiveNotice]) -> None:
        """One after the other in their order, stored together, then confirmed."""
        known = await self._chain.get()
        async with self._signatures.in_order(known.validators, notices) as verify, self._chain.changing:
            known, rows = await self._chain.get(), dict[Height, list[FollowedBlob]]()
            changed, good = dict[tuple[Height, int], FollowedBlob](), list[ArchiveNotice]()
            for notice in notices:
                if notice.height not in rows:
                    rows[notice.height] = await self._chain.store.blobs(notice.height)
                blobs = rows[notice.height]
                if not self._counts(known, blobs, notice, verify):
                    continue
                good.append(notice)
                record = with_notice(blobs[notice.blob_index], notice, encode_notice(notice), SIGNED)
                if record is not None:
                    blobs[notice.blob_index] = changed[record.height, record.number] = record
                    self._metrics.notices += 1
            if changed:
                await self._chain.store.update(list(changed.values()))
        for notice in good:
            await self._confirm(known, notice)

    def _counts(
        self, known: FollowedChain, blobs: Sequence[FollowedBlob], notice: ArchiveNotice, verify: VerifySignature
    ) -> bool:
        """A follower only has final blocks."""
        facts = record_from(BlobFacts, blobs[notice.blob_index]) if notice.blob_index < len(blobs) else None
        ground = NoticeGround(self._chain.chain_id, known.validators, known.head.header.height, facts)
        outcome = why_not_notice(ground, notice, verify, self._address_of)
        if not isinstance(outcome, Refused):
            return True
        if outcome.name == NOT_DECIDED:
            self._keep(notice)
        else:
            self._refuse(outcome, notice)
        return False

    def _keep(self, notice: ArchiveNotice) -> None:
        """NTC-003: its signature is good, its block is not here yet. What does not fit is sent again one day."""
        root = notice_root(notice)
        if root not in self.early and len(self.early) >= self._policy.notices_waiting_max:
            self._refuse(Refused("NTC-003", f"{len(self.early)} early notices wait already", name="BufferFull"))
        else:
            self.early[root] = notice

    async def _confirm(self, known: FollowedChain, notice: ArchiveNotice) -> None:
        """NTC-004: every time, since the last confirmation may be lost."""
        signer = self._signer
        if signer is None or not known.validators.is_member(signer.public, known.head.header.height):
            return
        root = notice_root(notice)
        signature = signer.sign(ack_root(root))
        confirmation = NoticeConfirmation(notice.height, notice.blob_index, root, signer.public, signature)
        await self._peers.broadcast(encode_message(confirmation))

    def _refuse(self, refusal: Refused, notice: ArchiveNotice | None = None) -> None:
        self._metrics.failures[refusal.name] += 1
        log = _log.warning
        if refusal.name in CONFLICTS:
            self._metrics.conflicts += 1
            log = _log.error
        height = None if notice is None else notice.height
        log("notice_conflict" if refusal.name in CONFLICTS else "notice_refused", height=height, reason=str(refusal))
