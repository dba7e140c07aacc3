"""A node whose results are packed into blobs, for the tests of the archive: a real folder, simulated KZG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from tests.simulation.kzg import SimulatedKzg
from tests.simulation.world import evict_final
from tests.workers.retention.retention_node import RetentionNode, policy

from holdfast.adapters.archive.object_archive import ObjectArchive
from holdfast.adapters.blobs.blob_folder import BlobFolder
from holdfast.adapters.keys.archive_key import ArchiveKey
from holdfast.adapters.keys.keccak import keccak_256
from holdfast.adapters.keys.signing import SigningKey, verify
from holdfast.adapters.objects.local_folder import LocalObjects
from holdfast.api.node_access import NodeAccess
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.base.values import Digest, TaskId
from holdfast.core.blob.framing import read_frame, unpack_payload
from holdfast.core.blob.model import LiveBlob, all_blobs
from holdfast.core.chain.messages import SealBlock
from holdfast.core.policy import ArchivePolicy, ChainPolicy, Policy
from holdfast.core.result import result_digest
from holdfast.ports.blobs import ItemUpload, PackName
from holdfast.workers.archive.archive_control import ArchiveControl
from holdfast.workers.archive.archived_outputs import ArchivedOutputs, FetchBudget
from holdfast.workers.archive.archiver import Archiver
from holdfast.workers.archive.blob_packer import BlobPacker
from holdfast.workers.archive.blob_pruner import BlobPruner
from holdfast.workers.archive.blob_repacker import BlobRepacker
from holdfast.workers.archive.fetch_result import WantedResult
from holdfast.workers.archive.recorded_archive import RecordedArchive
from holdfast.workers.retention.collector import Collector

KEY = ArchiveKey(bytes(range(32)))


def archive_policy(depth: int = 2, **settings: object) -> Policy:
    """A development network that packs at once and is final after `depth` blocks."""
    archive = msgspec.structs.replace(ArchivePolicy(blob_wait_blocks=0), **settings)
    chain = ChainPolicy(finality_depth=depth)
    return msgspec.structs.replace(policy(retain_hot_blocks=depth), archive=archive, chain=chain)


class FaultyArchive:
    """An archive in a folder that fails, forgets and lies as a test says."""

    def __init__(self, folder: Path) -> None:
        self._archive = ObjectArchive(LocalObjects(folder), "file", "file:test")
        self.id, self.locator_of = "file", self._archive.locator_of
        self.stores: list[str] = []
        self.fetches: list[str] = []
        self.faults_before = 0
        """How many uploads fail before anything is stored …"""
        self.fails_at = ""
        """… only those whose place ends like this: uploads of a height overtake each other …"""
        self.faults_after = 0
        """… and how many after it was stored: the answer is lost."""
        self.refusal: Refused | None = None
        self.is_away = False
        self.lie: Callable[[bytes], bytes | None] = lambda raw: raw

    async def open(self) -> None:
        pass

    async def store(self, item: ItemUpload) -> Refused | None:
        self.stores.append(item.id)
        if self.refusal is not None:
            return self.refusal
        if self.faults_before and item.place.endswith(self.fails_at):
            self.faults_before -= 1
            raise Unavailable("ARC-003", "simulated: the archive is away")
        await self._archive.store(item)
        if self.faults_after:
            self.faults_after -= 1
            raise Unavailable("ARC-003", "simulated: the connection broke")
        return None

    async def fetch(self, locator: str) -> bytes | None:
        self.fetches.append(locator)
        if self.is_away:
            raise Unavailable("ARC-003", "simulated: the archive is away")
        raw = await self._archive.fetch(locator)
        return None if raw is None else self.lie(raw)

    async def find(self, place: str, versioned_hash: Digest) -> list[str]:
        return await self._archive.find(place, versioned_hash)

    async def close(self) -> None:
        pass


class ArchiveNode(RetentionNode):
    """A retention node with a packer."""

    def __init__(self, told: Policy, folder: Path) -> None:
        super().__init__(told)
        self.kzg, self.files = SimulatedKzg(), BlobFolder(folder / "blobs")
        self.folder = folder
        self.signer, self.provider = SigningKey.from_seed(bytes(32)), FaultyArchive(folder / "archived")
        self.is_key_kept = True
        self.fetch_bytes_per_hour, self.cipher = 0, KEY
        self.packer: BlobPacker
        self.archiver: Archiver
        self.pruner: BlobPruner
        self.recorded: RecordedArchive
        self.control: ArchiveControl

    async def open(self) -> None:
        await super().open()
        engine, files, kzg = self.engine, self.files, self.kzg
        self.packer = BlobPacker(engine, self.blobs, files, kzg, KEY)
        self.archiver = Archiver(engine, self.provider, files, kzg, self.signer, verify, keccak_256)
        self.pruner = BlobPruner(engine, files, self.archiver.metrics, lambda: self.is_key_kept)
        self.recorded = RecordedArchive(engine, self.provider, files, kzg, KEY, lambda: self.is_key_kept)
        self.collector = Collector(engine, self.blobs, self.clock, self.recorded)
        budget = FetchBudget(self.fetch_bytes_per_hour, lambda: self.clock.monotonic)
        outputs = ArchivedOutputs(self.recorded.read, self.folder / "fetched", budget)
        repacker = BlobRepacker(engine, self.blobs, files, KEY)
        self.control = ArchiveControl(engine, self.archiver, self.pruner, self.recorded, outputs, repacker=repacker)

    def access(self) -> NodeAccess:
        """What its servers work with."""
        access = NodeAccess(self.engine, self.engine.submit)
        access.blobs, access.blob_files = self.blobs, self.files
        access.archive = access.archived = self.control
        return access

    async def let_go(self) -> None:
        """Archived, and deleted here: from the packs, the disk and the store."""
        await self.archiver.run_once()
        await self.pruner.run_once()
        await self.engine.wait_tables()
        await self.pass_days(2)
        await self.collector.resume_deletes()
        await self.collector.run_passes()

    async def resolve_public(self, output: bytes, *, seals: int = 0) -> TaskId:
        self.payload_extra = {"visibility": "public"}
        task_id = await self.resolve(output, seals=seals)
        self.payload_extra = {}
        return task_id

    async def seal(self, times: int = 1) -> None:
        """Blocks of this node's own key: it proposes them, so it archives them."""
        for _ in range(times):
            await self.engine.submit(SealBlock(self.signer.public, self.signer.sign))
        await evict_final(self.engine)

    async def pack_final(self) -> None:
        """Everything that waits is in blobs of a final block."""
        await self.pack(seals=1 + self.engine.policy.chain.finality_depth)
        await self.packer.run_once()

    async def read_archived(self, task: TaskId, output: bytes) -> bytes:
        """What the archive has of a result whose output was this."""
        wanted = WantedResult(task, result_digest(output), len(output))
        return b"".join([piece async for piece in self.recorded.read(wanted)])

    @property
    def packs(self) -> list[str]:
        folder = self.folder / "blobs" / "packs"
        return sorted(file.name for file in folder.iterdir()) if folder.exists() else []

    async def pack(self, seals: int = 1) -> None:
        await self.packer.run_once()
        await self.seal(seals)

    @property
    def lives(self) -> list[LiveBlob]:
        return list(all_blobs(self.engine.undurable_state))

    async def raw_blob(self, live: LiveBlob) -> bytes:
        blob = live.blob
        pack = PackName(blob.height, blob.block_hash)
        raw = await self.files.read(pack, blob.number, blob.versioned_hash, blob.keccak)
        assert raw is not None
        return raw

    async def unpacked(self) -> dict[TaskId, tuple[bool, bytes]]:
        """What the blobs hold: of each task whether it is encrypted, and its bytes."""
        frames: dict[TaskId, bytes] = {}
        for live in self.lives:
            payload = unpack_payload(await self.raw_blob(live))
            for part in live.parts:
                piece = payload[part.offset : part.offset + part.length]
                frames[part.task_id] = frames.get(part.task_id, b"") + piece
        found = {}
        for task_id, raw in frames.items():
            header, body = read_frame(raw)
            assert header.task_id == task_id
            plain = KEY.decrypt(task_id, header.result_digest, body) if header.is_encrypted else body
            found[task_id] = (header.is_encrypted, plain)
        return found
