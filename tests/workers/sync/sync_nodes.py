"""A proposer and its followers on one network in one process: real folders, simulated KZG, a journal in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from tests.simulation.kzg import SimulatedKzg
from tests.workers.archive.archive_node import ArchiveNode, FaultyArchive, archive_policy

from holdfast.adapters.blobs.blob_folder import BlobFolder
from holdfast.adapters.keys.keccak import address_of
from holdfast.adapters.keys.signing import SigningKey, verify
from holdfast.adapters.peers.local_network import LocalNetwork, LocalPeers
from holdfast.adapters.sqlite.follower_store import SqliteFollowerStore
from holdfast.core.base.values import ChainId, Height
from holdfast.core.chain.model import final_height
from holdfast.core.policy import ArchivePolicy, Policy
from holdfast.core.sync.followed import FollowedBlob
from holdfast.core.validator.messages import AddValidator, SucceedProposer
from holdfast.workers.sync.blob_repair import BlobRepair
from holdfast.workers.sync.follower import BlobFollower, FollowerParts, FollowerTrust
from holdfast.workers.sync.notice_sender import NoticeSender
from holdfast.workers.sync.owner_service import OwnerService
from holdfast.workers.sync.sync_metrics import SyncMetrics

OWNER = "owner"
KEYS = [SigningKey.from_seed(bytes([number]) * 32) for number in range(4)]
"""The first proposes; the others are validators that follow, or take over."""
TRUSTED = (KEYS[0].public,)


class ProposerNode(ArchiveNode):
    """An archiving node with everything that speaks to peers."""

    def __init__(self, told: Policy, folder: Path, network: LocalNetwork) -> None:
        super().__init__(told, folder)
        self.network = network
        self.metrics = SyncMetrics()
        self.service: OwnerService
        self.sender: NoticeSender
        self.repair: BlobRepair

    async def open(self) -> None:
        await super().open()
        engine = self.engine
        self.service = OwnerService(engine, self.files, verify, address_of, engine.submit_many, self.metrics)
        peers = self.network.join(OWNER, self.service)
        self.sender = NoticeSender(engine, self.service, peers)
        self.repair = BlobRepair(engine, self.files, self.kzg, self.provider, peers)
        self.control.recall = self.repair.recall

    async def kill(self) -> None:
        self.network.leave(OWNER)
        await super().kill()

    async def seal_first(self) -> None:
        """The first block is the proposer's own: followers know no other key."""
        await self.seal()

    async def take_over(self, signer: SigningKey) -> object:
        """The process ends, and another with another key continues its journal."""
        await self.kill()
        self.signer = signer
        await self.open()
        return await self.engine.submit(SucceedProposer(signer.public))

    async def add_blobs(self, output: bytes = b"out") -> Height:
        """A public result in a blob of a block that is final; its height."""
        await self.resolve_public(output, seals=1)
        await self.pack_final()
        state = self.engine.undurable_state
        return max(height for height in state.blob_heights if height <= final_height(state))

    async def archive_now(self) -> None:
        await self.archiver.run_once()
        await self.sender.run_once()

    async def add_validators(self, keys: Sequence[SigningKey]) -> None:
        for key in keys:
            await self.engine.submit(AddValidator(key.public))
        await self.seal(2)

    def pass_ms(self, ms: int) -> None:
        self.clock.wall += ms
        self.clock.monotonic += ms


class FollowerNode:
    """A follower with a folder, that can be killed and opened again."""

    def __init__(
        self,
        folder: Path,
        archive: FaultyArchive | None = None,
        signer: SigningKey | None = None,
        keys: Sequence[bytes] = (),
        signatures: Any = None,
        verify: Any = verify,
        **policy: object,
    ) -> None:
        self.signatures, self.verify = signatures, verify
        self.folder, self.archive, self.signer, self.keys = folder, archive, signer, keys or TRUSTED
        self.policy = msgspec.structs.replace(ArchivePolicy(), **policy)
        self.files = BlobFolder(folder / "blobs")
        self.find_every = 1
        self.store: SqliteFollowerStore
        self.follower: BlobFollower
        self.peers: LocalPeers

    def open(self, network: LocalNetwork, name: str) -> None:
        self.store = SqliteFollowerStore(self.folder / "follower.db")
        parts = FollowerParts(
            store=self.store,
            files=self.files,
            kzg=SimulatedKzg(),
            archive=self.archive,
            signer=self.signer,
            verify=self.verify,
            address_of=address_of,
            signatures=self.signatures,
        )
        told = archive_policy()
        trust = FollowerTrust(ChainId(told.chain_id), told.network, self.keys)
        self.follower = BlobFollower(parts, trust, self.policy, find_every=self.find_every)
        self.peers = network.join(name, self.follower)
        self.follower.connect(self.peers)

    async def close(self) -> None:
        await self.store.close()

    async def run(self) -> None:
        await self.follower.run_once()

    async def height(self) -> Height:
        return await self.follower.final_height()

    async def blobs(self, height: Height) -> list[FollowedBlob]:
        return await self.store.blobs(height)

    @property
    def packs(self) -> list[str]:
        folder = self.folder / "blobs" / "packs"
        return sorted(file.name for file in folder.iterdir()) if folder.exists() else []
