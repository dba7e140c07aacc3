"""Bytes out of blobs: in order, a few blobs ahead, and refused where a frame is another's, cut or not of its digest."""

from __future__ import annotations

import pytest

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.values import Digest, EventNo, Height, TaskId
from holdfast.core.blob.framing import PAYLOAD_BYTES, make_frame, pack_payload
from holdfast.core.blob.model import Blob, BlobStatus
from holdfast.core.result import result_digest
from holdfast.workers.archive.fetch_result import AHEAD, FramePart, WantedResult, fetch_result

TASK = TaskId(b"\7" * 32)
OUTPUT = bytes(range(256)) * 4_000


class HeldBlobs:
    """Blobs in memory that count how many are read at a time."""

    def __init__(self, frame: bytes) -> None:
        self.raws = [
            pack_payload(frame[start : start + PAYLOAD_BYTES]) for start in range(0, len(frame), PAYLOAD_BYTES)
        ]
        lengths = [min(PAYLOAD_BYTES, len(frame) - start) for start in range(0, len(frame), PAYLOAD_BYTES)]
        self.parts = [FramePart(0, length, _blob(number)) for number, length in enumerate(lengths)]
        self.reads: list[int] = []

    async def read(self, blob: Blob) -> bytes:
        self.reads.append(blob.number)
        return self.raws[blob.number]

    async def fetch(self, wanted: WantedResult) -> bytes:
        pieces = fetch_result(wanted, self.parts, self.read, lambda _: pytest.fail("it is not encrypted"))
        return b"".join([piece async for piece in pieces])


def _blob(number: int) -> Blob:
    zero = Digest(bytes(32))
    return Blob(EventNo(number), Height(1), number, b"", b"", BlobStatus.ARCHIVED, zero, b"", b"", zero)


def wanted(output: bytes = OUTPUT) -> WantedResult:
    return WantedResult(TASK, result_digest(output), len(output))


@pytest.mark.rule("RES-009", "BLB-001")
async def test_a_result_comes_in_order_from_blobs_that_are_read_a_few_ahead() -> None:
    held = HeldBlobs(make_frame(TASK, result_digest(OUTPUT), OUTPUT))
    assert len(held.parts) > AHEAD
    pieces = fetch_result(wanted(), held.parts, held.read, lambda _: pytest.fail("it is not encrypted"))
    first = await anext(pieces)
    assert len(held.reads) <= AHEAD + 1
    assert first + b"".join([piece async for piece in pieces]) == OUTPUT
    assert held.reads == list(range(len(held.parts)))


@pytest.mark.rule("RES-004", "BLB-001")
async def test_another_body_another_frame_and_a_cut_one_are_refused() -> None:
    digest = result_digest(OUTPUT)
    for frame, reason in (
        (make_frame(TASK, digest, OUTPUT[:-1] + b"\0"), "another digest"),
        (make_frame(TaskId(b"\1" * 32), digest, OUTPUT), "where the record has another"),
        (make_frame(TASK, digest, OUTPUT)[:-1], "is cut"),
    ):
        with pytest.raises(Corrupt, match=reason):
            await HeldBlobs(frame).fetch(wanted())
