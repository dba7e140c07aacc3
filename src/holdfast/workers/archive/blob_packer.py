"""Packs the bytes of resolved results into blobs of later blocks (BLB-001, BLB-002).

Resolution never waits for it. Where it is, is in the state: a packer that was killed packs the same bytes into the same
blobs again, and loose files that no block has are deleted at the next start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import EventNo, Height
from holdfast.core.blob.framing import HEADER_BYTES, PAYLOAD_BYTES, Piece, make_frame, pack_payload, split_frames
from holdfast.core.blob.framing import versioned_hash as versioned_hash_of
from holdfast.core.blob.messages import BLOCK_FULL, AddBlob, ReaddBlobs
from holdfast.core.blob.model import BlobContent, BlobCursor, BlobPart, all_blobs, cursor_of
from holdfast.core.result.model import Result
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Outcome
from holdfast.engine.queries.chain import GetChainHead
from holdfast.engine.queries.node import Ping
from holdfast.ports import Blobs
from holdfast.ports.blobs import ArchiveCipher, BlobFiles, Kzg, KzgWork, PackName
from holdfast.workers.retention.candidates import load_candidates

INTERVAL_MS: Final = 500
ROWS_MAX: Final = 4_096
"""Results looked at in one run …"""
BLOBS_MAX: Final = 16
"""… and about how many blobs it lays out at a time."""
_log = structlog.get_logger()


class Frame(msgspec.Struct, frozen=True):
    """A result that is to be packed, and the cursor up to it."""

    result: Result
    size: int
    before: EventNo
    """The result before it: a cursor between two of its blobs stands there."""


class PackedBlob(msgspec.Struct, frozen=True):
    """A blob that is laid out, without its KZG work."""

    raw: bytes
    parts: tuple[BlobPart, ...]
    until: BlobCursor


class BlobPacker:
    """One run: blobs of orphaned blocks first, then new ones, then packs of blocks that became final."""

    starts_at_once = True
    interval_ms = INTERVAL_MS

    def __init__(self, engine: Engine, warm: Blobs, files: BlobFiles, kzg: Kzg, cipher: ArchiveCipher) -> None:
        self._engine, self._warm, self._files, self._kzg, self._cipher = engine, warm, files, kzg, cipher
        self._packed_until = Height(0)
        """Final heights up to this one have packs."""
        self._found: set[PackName] = set()
        """Packs that an earlier process has written."""
        self._body: tuple[EventNo, bytes] = (EventNo(0), b"")
        """The frame that was read last: a large one is in many blobs."""
        self._ready: list[tuple[PackedBlob, KzgWork]] = []
        """Committed to, in no block yet."""
        self._is_clean = False
        self.missing = 0
        """Results whose bytes this node does not have any more: they are in no blob."""

    async def run_once(self) -> None:
        state = self._engine.undurable_state
        if state.chain.rollback is not None:
            return
        if not self._is_clean:
            await self._clean_up()
        if state.blob_pool:
            await self._engine.submit(ReaddBlobs())
        await self.write_packs()
        while await self._add_ready() and await self._pack_some():
            pass

    async def _clean_up(self) -> None:
        """What a packer that was killed has left: loose bytes that no block has."""
        state, self._found = self._engine.undurable_state, set(await self._files.packs())
        loose = (
            live.blob
            for live in all_blobs(state)
            if PackName(live.blob.height, live.blob.block_hash) not in self._found
        )
        needed = {blob.versioned_hash for blob in loose} | {content.versioned_hash for content in state.blob_pool}
        deleted = await self._files.delete_loose(needed)
        self._is_clean = True
        if deleted:
            _log.info("loose_blobs_deleted", count=deleted)

    async def write_packs(self) -> None:
        """A block that is final is never rolled back: its blobs become one file. Heights become final in order.

        The seal is durable first: one that was lost is made anew with another hash, and its loose files are needed.
        """
        final, new = (await self._engine.query_durable(GetChainHead())).finalized, list[Height]()
        state = self._engine.undurable_state
        for height in reversed(state.blob_heights):
            if height <= self._packed_until:
                break
            if height <= final:
                new.append(height)
        for height in reversed(new):
            blobs = state.blob_heights.get(height)
            if not blobs or self._is_pruned(height):
                continue
            pack = PackName(height, blobs[0].blob.block_hash)
            if pack not in self._found:
                await self._files.write_pack(pack, [(each.blob.versioned_hash, each.blob.keccak) for each in blobs])
                if self._is_pruned(height):  # meanwhile: the pruner has looked for it before it was there
                    await self._engine.query_durable(Ping())  # the flag is durable before the bytes go
                    await self._files.delete_pack(pack)
        self._packed_until = Height(max(self._packed_until, final))
        self._found.clear()

    def _is_pruned(self, height: Height) -> bool:
        blobs = self._engine.undurable_state.blob_heights.get(height)
        return bool(blobs and blobs[0].blob.is_pruned)

    # ------------------------------------------------------------------------------------ new blobs

    async def _pack_some(self) -> bool:
        """Lay out, commit to and add some blobs; whether there may be more to do now."""
        cursor = cursor_of(self._engine.undurable_state)
        frames = await self._next_frames(cursor)
        layout = list(split_frames([frame.size for frame in frames], cursor.offset))
        if layout and not self._is_closed(layout[-1], frames):
            layout.pop()
        layout = layout[:BLOBS_MAX]
        done, commits = cursor.offset, list[asyncio.Task[tuple[PackedBlob, KzgWork]]]()
        try:
            for pieces in layout:  # KZG of the first goes on while the next are laid out
                blob, done = await self._lay_out(pieces, frames, done)
                commits.append(asyncio.create_task(self._commit(blob)))
            self._ready = list(await asyncio.gather(*commits))
        finally:
            for task in commits:
                task.cancel()
        return bool(layout) and await self._add_ready()

    async def _commit(self, blob: PackedBlob) -> tuple[PackedBlob, KzgWork]:
        """ENG-007: the bytes are durable before an event speaks of them."""
        work = await self._kzg.commit(blob.raw)
        await self._files.put(versioned_hash_of(work.commitment), blob.raw)
        return blob, work

    async def _add_ready(self) -> bool:
        """Add what is committed to; a block that is full leaves the rest for the next one, without new KZG work."""
        while self._ready:
            blob, work = self._ready[0]
            outcome = await self._add(blob, work, cursor_of(self._engine.undurable_state))
            if isinstance(outcome, Refused):
                _log.debug("blob_waits", reason=str(outcome))
                self._ready = self._ready if outcome.name == BLOCK_FULL else []
                return False
            del self._ready[0]
        return True

    async def _next_frames(self, cursor: BlobCursor) -> list[Frame]:
        """Results of sealed blocks after the cursor, in the order of their events, as many as fill some blobs."""
        engine, frames, after, size, seen = self._engine, list[Frame](), cursor.event, 0, 0
        head = engine.undurable_state.chain.head.height
        await engine.wait_tables()
        before = cursor.event
        while seen < ROWS_MAX and size < BLOBS_MAX * PAYLOAD_BYTES:
            page = await load_candidates(engine, after, head, ROWS_MAX - seen)
            if not page:
                break
            for result in page:
                if result.result_size and await self._is_held(result):
                    size_of = int if result.is_public else self._cipher.encrypted_size
                    frames.append(Frame(result, HEADER_BYTES + size_of(result.result_size), before))
                    size, before = size + frames[-1].size, result.event
            seen, after = seen + len(page), page[-1].event
        return frames

    async def _is_held(self, result: Result) -> bool:
        if await self._warm.is_held(result.result_digest):
            return True
        self.missing += 1
        _log.warning("result_not_packed", task_id=result.task_id.hex(), reason="its bytes are not on this node")
        return False

    def _is_closed(self, pieces: Sequence[Piece], frames: Sequence[Frame]) -> bool:
        """The last blob of a layout waits for more results, until its first one has waited long enough."""
        engine = self._engine
        waited = engine.undurable_state.chain.head.height - frames[pieces[0].frame].result.height_resolved
        return (
            waited >= engine.policy.archive.blob_wait_blocks or pieces[-1].offset + pieces[-1].length == PAYLOAD_BYTES
        )

    async def _lay_out(self, pieces: Sequence[Piece], frames: Sequence[Frame], done: int) -> tuple[PackedBlob, int]:
        """One blob, and how much of its last frame is in blobs then; `done` is that of its first frame."""
        payload, parts = bytearray(), list[BlobPart]()
        for piece in pieces:
            frame = frames[piece.frame]
            raw = await self._raw_frame(frame)
            payload += raw[done : done + piece.length]
            parts.append(BlobPart(frame.result.task_id, frame.result.result_digest, piece.offset, piece.length))
            done = 0 if done + piece.length == frame.size else done + piece.length
        last = frames[pieces[-1].frame]
        until = BlobCursor(last.before, done) if done else BlobCursor(last.result.event)
        return PackedBlob(await asyncio.to_thread(pack_payload, bytes(payload)), tuple(parts), until), done

    async def _raw_frame(self, frame: Frame) -> bytes:
        """BLB-003: private bytes are encrypted before anything else is done with them."""
        result = frame.result
        if self._body[0] != result.event:
            raw = await self._warm.read(result.result_digest)
            assert raw is not None, "its size was asked a moment ago"
            if result.is_public:
                body, key_id = raw, None
            else:
                body = await asyncio.to_thread(self._cipher.encrypt, result.task_id, result.result_digest, raw)
                key_id = self._cipher.id
            self._body = (result.event, make_frame(result.task_id, result.result_digest, body, key_id))
        return self._body[1]

    async def _add(self, blob: PackedBlob, work: KzgWork, after: BlobCursor) -> Outcome:
        hash_ = versioned_hash_of(work.commitment)
        content = BlobContent(hash_, work.commitment, work.proof, work.keccak, blob.parts)
        return await self._engine.submit(AddBlob(content, after, blob.until))
