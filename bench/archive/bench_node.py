"""A node of the measurements: a real engine, real KZG, blobs in a folder, an archive in a bucket of SeaweedFS."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from tests.seaweedfs.server import SeaweedServer
from tests.workers.archive.archive_node import KEY, ArchiveNode, archive_policy

from bench.engine.opened import close_engine, open_engine
from bench.stores import StorePlace
from holdfast.adapters.archive.object_archive import ObjectArchive
from holdfast.adapters.keys.keccak import keccak_256
from holdfast.adapters.keys.signing import verify
from holdfast.adapters.kzg.pool import KzgPool
from holdfast.adapters.objects.remote_store import RemoteObjects
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command
from holdfast.core.base.values import Digest, TaskId
from holdfast.core.blob.framing import pack_payload, versioned_hash
from holdfast.core.blob.messages import AddBlob
from holdfast.core.blob.model import BlobContent, BlobCursor, BlobPart, cursor_of
from holdfast.core.chain.messages import SealBlock
from holdfast.core.policy import Policy
from holdfast.ports.blobs import ArchiveProvider, KzgWork
from holdfast.workers.archive.archiver import Archiver
from holdfast.workers.archive.blob_packer import BlobPacker
from holdfast.workers.archive.blob_pruner import BlobPruner

PAYLOAD = 100_000
"""Bytes of each blob that are not zero."""


def bench_policy(**settings: object) -> Policy:
    """Blocks are final at once: the chain is not what is measured."""
    return archive_policy(0, **settings)


class CommittedBlob(msgspec.Struct, frozen=True):
    """A blob whose KZG work is done."""

    raw: bytes
    work: KzgWork


async def committed_blobs(kzg: KzgPool, count: int) -> list[CommittedBlob]:
    raws = [pack_payload(os.urandom(PAYLOAD)) for _ in range(count)]
    return [CommittedBlob(raw, await kzg.commit(raw)) for raw in raws]


class BenchNode(ArchiveNode):
    """Its engine is a real one; what it archives goes where a measurement says."""

    def __init__(self, folder: Path, kzg: KzgPool, policy: Policy) -> None:
        super().__init__(policy, folder)
        self._policy, self.kzg = policy, kzg  # type: ignore[assignment]
        self.clock.wall = int(time.time() * 1_000)  # what its commands say must be true for a real engine

    async def open_real(self, provider: ArchiveProvider) -> None:
        self.engine = await open_engine(StorePlace(self.folder), self._policy)
        self.provider = provider  # type: ignore[assignment]
        self.packer = BlobPacker(self.engine, self.blobs, self.files, self.kzg, KEY)
        self.archiver = Archiver(self.engine, provider, self.files, self.kzg, self.signer, verify, keccak_256)
        self.pruner = BlobPruner(self.engine, self.files, self.archiver.metrics, lambda: True)
        self.archiver.on_archived = self.pruner.prune

    async def close(self) -> None:
        await close_engine(self.engine)

    async def add_height(self, blobs: list[CommittedBlob]) -> None:
        """A sealed, final block with these blobs, packed: everything before the archive."""
        for blob in blobs:
            hash_ = versioned_hash(blob.work.commitment)
            await self.files.put(hash_, blob.raw)
            part = BlobPart(TaskId(os.urandom(32)), Digest(os.urandom(32)), 0, PAYLOAD)
            work = blob.work
            content = BlobContent(hash_, work.commitment, work.proof, work.keccak, (part,))
            cursor = cursor_of(self.engine.undurable_state)
            outcome = await self.engine.submit(AddBlob(content, cursor, BlobCursor(cursor.event, cursor.offset + 1)))
            assert not isinstance(outcome, Refused), outcome
        await self.engine.submit(SealBlock(self.signer.public, self.signer.sign))
        await self.packer.write_packs()

    async def add_bare(self, blobs: Sequence[CommittedBlob]) -> None:
        """A final block for each, with a blob whose bytes nobody will ask for."""
        cursor, commands = cursor_of(self.engine.undurable_state), list[Command]()
        for number, blob in enumerate(blobs):
            hash_, work = versioned_hash(blob.work.commitment), blob.work
            part = BlobPart(TaskId(os.urandom(32)), Digest(os.urandom(32)), 0, PAYLOAD)
            content = BlobContent(hash_, work.commitment, work.proof, work.keccak, (part,))
            after, until = (BlobCursor(cursor.event, cursor.offset + number + step) for step in (0, 1))
            commands += [AddBlob(content, after, until), SealBlock(self.signer.public, self.signer.sign)]
        outcomes = await self.engine.submit_many(commands)
        assert not any(isinstance(outcome, Refused) for outcome in outcomes), outcomes

    async def wait_pruned(self, within_s: float = 120.0) -> None:
        """Until no height waits: polled closely, since time is what is measured."""
        until = time.monotonic() + within_s
        while any(not live.blob.is_pruned for live in self.lives):
            assert time.monotonic() < until, "not archived in time"
            await asyncio.sleep(0.001)


def bucket_of(server: SeaweedServer) -> tuple[ObjectArchive, RemoteObjects]:
    bucket = server.bucket()
    objects = RemoteObjects(bucket, endpoint=server.endpoint, config=server.config)
    return ObjectArchive(objects, "s3", bucket), objects
