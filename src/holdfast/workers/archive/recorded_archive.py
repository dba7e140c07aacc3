"""The archive as retention and readers see it: what the records say it holds, and bytes from it, checked (RET-002)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence

from holdfast.core.archive.decide import is_sure
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.values import Digest, TaskId
from holdfast.core.blob.framing import BLOB_BYTES, HEADER_BYTES, FrameHeader
from holdfast.core.blob.model import Blob, BlobStatus
from holdfast.engine.queries import ReadSource
from holdfast.engine.queries.archive.blob_records import PlacedPart, find_parts
from holdfast.ports.blobs import ArchiveCipher, ArchiveProvider, BlobFiles, Decryptor, Kzg, KzgWork, PackName
from holdfast.workers.archive.fetch_result import FramePart, WantedResult, fetch_result


class RecordedArchive:
    """Answers from verified records; only `read` reads the archive."""

    def __init__(
        self,
        source: ReadSource,
        provider: ArchiveProvider,
        files: BlobFiles,
        kzg: Kzg,
        cipher: ArchiveCipher,
        is_key_kept: Callable[[], bool],
    ) -> None:
        self._source, self._provider, self._files, self._kzg, self._cipher = source, provider, files, kzg, cipher
        self._is_key_kept = is_key_kept

    async def holds(self, digests: Sequence[tuple[Digest, int]]) -> dict[Digest, str]:
        """The digests of which every byte is archived, with the locator of the first; none before the key is kept."""
        if not self._is_key_kept() or not digests:
            return {}
        found = await find_parts(self._source, "result_digest", list({digest for digest, size in digests if size}))
        by_task: dict[tuple[Digest, TaskId], list[PlacedPart]] = defaultdict(list)
        for placed in found:
            by_task[placed.part.result_digest, placed.part.task_id].append(placed)
        sizes, held = dict(digests), {digest: "" for digest, size in digests if not size}  # nothing can be lost of it
        for (digest, _), parts in by_task.items():
            if digest not in held and self._are_whole(parts, sizes[digest]):
                held[digest] = parts[0].blob.locator
        return held

    def _are_whole(self, parts: Sequence[PlacedPart], size: int) -> bool:
        policy = self._source.policy.archive
        if not all(each.blob.status is BlobStatus.ARCHIVED and is_sure(policy, each.blob) for each in parts):
            return False
        total = sum(each.part.length for each in parts) - HEADER_BYTES
        return total in (size, self._cipher.encrypted_size(size))

    async def parts_of(self, task_id: TaskId) -> list[PlacedPart]:
        """Where the frame of a result is, in order."""
        return await find_parts(self._source, "task_id", [task_id])

    async def read(self, wanted: WantedResult) -> AsyncIterator[bytes]:
        """The bytes of a result in order, from this node's blobs or from the archive; nothing where no blob has it.

        Corrupt, at the latest after the last of them, where they are not its bytes.
        """
        placed = await self.parts_of(wanted.task_id)
        parts = [FramePart(each.part.offset, each.part.length, each.blob) for each in placed]
        if parts:
            async for piece in fetch_result(wanted, parts, self._read_blob, self._open_cipher):
                yield piece

    def _open_cipher(self, header: FrameHeader) -> Decryptor:
        if header.key_id != self._cipher.id:
            message = (
                f"these bytes are encrypted with the archive key {header.key_id:08x}, ours is {self._cipher.id:08x}"
            )
            raise Unavailable("BLB-003", message, "all nodes of a network share one archive key")
        return self._cipher.decryptor(header.task_id, header.result_digest)

    def key_of(self, task_id: TaskId, digest: Digest) -> tuple[int, bytes]:
        """The id of the archive key, and the key of one result derived from it: for whoever may read its output."""
        return self._cipher.id, self._cipher.key_of(task_id, digest)

    async def _read_blob(self, blob: Blob) -> bytes:
        pack = PackName(blob.height, blob.block_hash)
        raw = await self._files.read(pack, blob.number, blob.versioned_hash, blob.keccak)
        if raw is not None:
            return raw
        raw = None
        for locator in filter(None, (blob.locator, *blob.alternates.splitlines())):  # NTC-003: the same bytes elsewhere
            raw = await self._provider.fetch(locator)
            if raw is not None and await self._is_same(blob, raw):
                return raw
        if raw is not None:
            raise Corrupt("BLB-001", f"blob {blob.number} of height {blob.height}: the archive has other bytes")
        message = f"blob {blob.number} of height {blob.height} is not in the archive"
        raise Unavailable("ARC-004", message, blob.locator or "it was not archived yet")

    async def _is_same(self, blob: Blob, raw: bytes) -> bool:
        if len(raw) != BLOB_BYTES:
            return False
        (is_same,) = await self._kzg.verify([(raw, KzgWork(blob.commitment, blob.proof, blob.keccak))])
        return is_same
