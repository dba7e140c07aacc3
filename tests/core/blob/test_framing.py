"""Frames and payloads: bytes come back as they were, however they were laid into blobs (BLB-001)."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.values import Digest, TaskId
from holdfast.core.blob.framing import (
    BLOB_BYTES,
    HEADER_BYTES,
    PARTS_MAX,
    PAYLOAD_BYTES,
    make_frame,
    pack_payload,
    read_frame,
    split_frames,
    unpack_payload,
    versioned_hash,
)

TASK, DIGEST = TaskId(b"t" * 32), Digest(b"d" * 32)
SIZES = st.one_of(st.integers(1, 400), st.sampled_from([PAYLOAD_BYTES - 1, PAYLOAD_BYTES, PAYLOAD_BYTES + 1]))


@pytest.mark.rule("BLB-001")
def test_a_blob_has_31_bytes_in_every_field_element() -> None:
    payload = bytes(range(1, 256)) * 10
    blob = pack_payload(payload)
    assert len(blob) == BLOB_BYTES == 4_096 * 32
    elements = [blob[at : at + 32] for at in range(0, BLOB_BYTES, 32)]
    assert all(element[0] == 0 for element in elements)
    assert b"".join(element[1:] for element in elements).rstrip(b"\0") == payload
    assert unpack_payload(blob) == payload.ljust(PAYLOAD_BYTES, b"\0")


@pytest.mark.rule("BLB-001")
def test_a_frame_says_whose_bytes_it_holds_and_whether_they_are_encrypted() -> None:
    plain = make_frame(TASK, DIGEST, b"out")
    assert plain == bytes([1, 0, 0, 0, 0, 0]) + TASK + DIGEST + (3).to_bytes(8, "big") + b"out"
    header, body = read_frame(make_frame(TASK, DIGEST, b"secret", 7))
    assert (header.is_encrypted, header.key_id, header.task_id, header.result_digest) == (True, 7, TASK, DIGEST)
    assert body == b"secret"


@pytest.mark.rule("BLB-001")
@pytest.mark.parametrize("cut", [0, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 2])
def test_a_frame_that_is_cut_is_not_read(cut: int) -> None:
    with pytest.raises(Corrupt, match="BLB-001"):
        read_frame(make_frame(TASK, DIGEST, b"out")[:cut])


@pytest.mark.rule("BLB-001")
@given(st.lists(SIZES, min_size=1, max_size=12), st.integers(0, 10_000))
def test_every_byte_of_every_frame_is_in_one_place(sizes: list[int], skip: int) -> None:
    skip = min(skip, sizes[0] - 1)
    blobs = list(split_frames(sizes, skip))
    seen = dict.fromkeys(range(len(sizes)), 0)
    for pieces in blobs:
        end = 0
        for piece in pieces:
            assert end == piece.offset
            end = piece.offset + piece.length
            seen[piece.frame] += piece.length
        assert 0 < end <= PAYLOAD_BYTES
    assert seen == {frame: size - (skip if frame == 0 else 0) for frame, size in enumerate(sizes)}
    order = [piece.frame for pieces in blobs for piece in pieces]
    assert order == sorted(order)


@pytest.mark.rule("BLB-001")
def test_small_frames_share_a_blob_and_a_large_one_begins_a_new_one() -> None:
    small, large = 100, PAYLOAD_BYTES + 1
    first, second, third = split_frames([small, small, large, small])
    assert [piece.frame for piece in first] == [0, 1]
    assert [(piece.frame, piece.offset, piece.length) for piece in second] == [(2, 0, PAYLOAD_BYTES)]
    assert [(piece.frame, piece.length) for piece in third] == [(2, 1), (3, small)]


@pytest.mark.rule("BLB-001")
def test_a_blob_lists_a_bounded_number_of_results() -> None:
    assert [len(pieces) for pieces in split_frames([1] * (PARTS_MAX + 1))] == [PARTS_MAX, 1]


@pytest.mark.rule("BLB-001")
def test_the_versioned_hash_is_that_of_eip_4844() -> None:
    commitment = bytes(range(48))
    assert versioned_hash(commitment) == b"\x01" + sha256(commitment).digest()[1:]
