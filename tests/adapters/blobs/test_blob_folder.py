"""The folder of blobs: nothing is deleted before a pack has it, and nothing is read that was changed (BLB-002)."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.adapters.blobs.blob_folder import BlobFolder
from holdfast.adapters.keys.keccak import keccak_256, keccak_in_python
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.values import Digest, Height
from holdfast.ports.blobs import PackName

PACK = PackName(Height(7), b"\xab" * 32)
BLOBS = [bytes([number]) * 131_072 for number in (1, 2)]
HASHES = [(Digest(bytes([number]) * 32), Digest(keccak_256(blob))) for number, blob in enumerate(BLOBS)]


@pytest.fixture
def files(tmp_path: Path) -> BlobFolder:
    return BlobFolder(tmp_path)


async def fill(files: BlobFolder) -> None:
    for (hash_, _), blob in zip(HASHES, BLOBS, strict=True):
        await files.put(hash_, blob)


@pytest.mark.rule("BLB-002")
async def test_bytes_are_read_loose_and_packed(files: BlobFolder, tmp_path: Path) -> None:
    await fill(files)
    assert [await files.read(PACK, number, *HASHES[number]) for number in (0, 1)] == BLOBS
    await files.write_pack(PACK, HASHES)
    assert list((tmp_path / "undecided").iterdir()) == []
    assert [await files.read(PACK, number, *HASHES[number]) for number in (0, 1)] == BLOBS
    await files.write_pack(PACK, HASHES)  # again, after a crash
    assert await files.usage() == 2 * 131_072


@pytest.mark.rule("BLB-002")
async def test_a_pack_with_a_missing_blob_is_not_written(files: BlobFolder, tmp_path: Path) -> None:
    await files.put(HASHES[0][0], BLOBS[0])
    with pytest.raises(Unavailable, match="blob 1 of block 7 is missing"):
        await files.write_pack(PACK, HASHES)
    assert await files.read(PACK, 0, *HASHES[0]) == BLOBS[0]


@pytest.mark.rule("BLB-002")
@pytest.mark.parametrize("is_packed", [False, True])
async def test_changed_bytes_are_not_served(files: BlobFolder, tmp_path: Path, is_packed: bool) -> None:
    await fill(files)
    if is_packed:
        await files.write_pack(PACK, HASHES)
    (path, *_) = sorted(file for file in tmp_path.rglob("*") if file.is_file())
    raw = bytearray(path.read_bytes())
    raw[5] ^= 1
    path.write_bytes(raw)
    with pytest.raises(Corrupt, match="BLB-002"):
        await files.read(PACK, 0, *HASHES[0])


@pytest.mark.rule("BLB-002")
async def test_a_pack_is_deleted_as_a_whole_and_twice_is_told(files: BlobFolder) -> None:
    await fill(files)
    await files.write_pack(PACK, HASHES)
    assert await files.delete_pack(PACK)
    assert not await files.delete_pack(PACK)
    assert await files.read(PACK, 0, *HASHES[0]) is None


async def test_loose_blobs_of_no_block_are_deleted(files: BlobFolder) -> None:
    await fill(files)
    assert await files.delete_loose({HASHES[0][0]}) == 1
    assert await files.read(PACK, 0, *HASHES[0]) == BLOBS[0]
    assert await files.read(PACK, 1, *HASHES[1]) is None


@pytest.mark.parametrize("size", [0, 1, 135, 136, 137, 4_096, 4_097, 10_000])
def test_the_library_and_python_agree_on_keccak(size: int) -> None:
    message = bytes(range(256)) * 40
    assert keccak_256(message[:size]) == keccak_in_python(message[:size])
