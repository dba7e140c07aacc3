"""Brings a follower's chain up to its peers' (SYN-001): one block after the other, from whichever peer has a good one.

A package that fails a check is refused and counted, and the next peer is asked. Nothing is stored before the header,
the leaves, and the bytes or notices were checked. Bytes are durable before a row speaks of them.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec
import structlog

from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.base.values import Height, VerifySignature
from holdfast.core.sync.check_package import CheckedPackage, PackageGround, check_block, check_package, later_validators
from holdfast.core.sync.followed import FollowedChain, blobs_of
from holdfast.core.sync.package import BlockPackage, PackageKind
from holdfast.core.validator.model import AddressOf
from holdfast.ports.blobs import BlobFiles, Kzg, KzgWork, PackName
from holdfast.ports.sync import Peers
from holdfast.wire.packages import decode_package, notices_of
from holdfast.workers.sync.follower_chain import FollowerChain
from holdfast.workers.sync.signature_groups import SignatureGroups
from holdfast.workers.sync.sync_metrics import SyncMetrics

INTERVAL_MS: Final = 1_000
PROOF_BYTES: Final = 48
_log = structlog.get_logger()


class BlockSync:
    """One run: every block that some peer can show."""

    starts_at_once = True
    interval_ms = INTERVAL_MS

    def __init__(
        self,
        chain: FollowerChain,
        peers: Peers,
        files: BlobFiles,
        kzg: Kzg,
        verify: VerifySignature,
        address_of: AddressOf,
        signatures: SignatureGroups,
        metrics: SyncMetrics,
    ) -> None:
        self._chain, self._peers, self._files, self._kzg = chain, peers, files, kzg
        self._verify, self._address_of, self._signatures, self._metrics = verify, address_of, signatures, metrics
        self._order: deque[str] = deque()
        """Who gave the last good block is asked first; who gave a bad one is asked last."""
        self._heights: dict[str, Height] = {}
        """How far each peer was when it was asked last."""
        self._away: dict[str, str] = {}
        """Why a peer could not be asked the last time."""
        self._succeeded: dict[bytes, list[bytes]] = {}
        """Successions in blocks above ours: an old height may be archived by whoever took over later."""

    async def run_once(self) -> None:
        while await self.next_block():
            pass

    async def next_block(self) -> bool:
        """Whether a peer had a good next block."""
        known = await self._chain.get()
        height = Height(known.head.header.height + 1)
        for peer in self._ordered():
            raw = await self._ask(peer, height)
            if raw is None:
                continue
            refusal = await self._take(known, peer, raw)
            if refusal is None:
                self._metrics.blocks += 1
                return True
            self._metrics.failures[refusal.name] += 1
            _log.warning("package_refused", peer=peer, height=height, reason=str(refusal), name=refusal.name)
            self._order.remove(peer)
            self._order.append(peer)
        return False

    def _ordered(self) -> list[str]:
        names = self._peers.names()
        self._order = deque([name for name in self._order if name in names])
        self._order.extend(name for name in names if name not in self._order)
        return list(self._order)

    async def _ask(self, peer: str, height: Height) -> bytes | None:
        try:
            if self._heights.get(peer, 0) < height:
                self._heights[peer] = await self._peers.final_height(peer)
            if self._heights[peer] < height:
                return None
            package = await self._peers.package(peer, height)
        except Unavailable as fault:
            if self._away.get(peer) != str(fault):  # told once
                _log.warning("peer_away", peer=peer, reason=str(fault))
            self._away[peer] = str(fault)
            return None
        self._away.pop(peer, None)
        return package

    # ------------------------------------------------------------------------------------ one package

    async def _take(self, known: FollowedChain, peer: str, raw: bytes) -> Refused | None:
        package = decode_package(raw)
        if isinstance(package, Refused):
            return package
        checked = check_package(await self._notice_ground(known, package), package)
        if isinstance(checked, Refused) and package.kind is PackageKind.ARCHIVED and checked.name == "UnknownValidator":
            await self._look_ahead(known, peer, package)
            checked = check_package(await self._notice_ground(known, package), package)
        if isinstance(checked, Refused):
            return checked
        if refusal := await self._store_sidecars(checked, package):
            return refusal
        await self._chain.append(checked, blobs_of(checked, package, notices_of(package)))
        return None

    def _ground(self, known: FollowedChain) -> PackageGround:
        return PackageGround(known.head, known.validators, self._verify, self._address_of, self._succeeded)

    async def _notice_ground(self, known: FollowedChain, package: BlockPackage) -> PackageGround:
        """With the signatures of the notices in it verified, together: a block may have many."""
        ground = self._ground(known)
        notices = [each.notice for each in package.archived if each is not None]
        verify = await self._signatures.verify_ahead(later_validators(ground), notices)
        return msgspec.structs.replace(ground, verify=verify)

    async def _look_ahead(self, known: FollowedChain, peer: str, package: BlockPackage) -> None:
        """Learn of takeovers above this block, from headers and leaves that are checked like any others."""
        ground = self._ground(known)
        while True:
            checked = check_block(ground, package)
            if isinstance(checked, Refused):
                break
            ground = PackageGround(checked.signed, checked.validators, self._verify, self._address_of)
            raw = await self._ask(peer, Height(checked.signed.header.height + 1))
            following = None if raw is None else decode_package(raw)
            if following is None or isinstance(following, Refused):
                break
            package = following
        self._succeeded = ground.validators.successors

    async def _store_sidecars(self, checked: CheckedPackage, package: BlockPackage) -> Refused | None:
        """BLB-001: KZG and Keccak-256 of every blob, then all of them as one pack."""
        if package.kind is not PackageKind.FULL or not checked.leaves:
            return None
        pairs = list(zip(checked.leaves, package.sidecars, strict=True))
        works = [(each.raw, KzgWork(leaf.commitment, each.proof, leaf.keccak)) for leaf, each in pairs]
        are_true = all(len(each.proof) == PROOF_BYTES for each in package.sidecars)
        if not are_true or not all(await self._kzg.verify(works)):
            message = f"the bytes of block {checked.signed.header.height} are not what it commits to"
            return Refused("SYN-001", message, "another peer is asked", "SidecarMismatch")
        for leaf, each in pairs:
            await self._files.put(leaf.versioned_hash, each.raw)
        pack = PackName(checked.signed.header.height, checked.signed.hash)
        await self._files.write_pack(pack, [(leaf.versioned_hash, leaf.keccak) for leaf in checked.leaves])
        return None
