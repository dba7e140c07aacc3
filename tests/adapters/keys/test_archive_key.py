"""The archive key: equal bytes encrypt equally, and no chunk can be changed, moved or left out (BLB-003)."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from holdfast.adapters.keys.archive_key import CHUNK_BYTES, TAG_BYTES, ArchiveKey, decrypt_with
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.values import Digest, TaskId

KEY = ArchiveKey(bytes(32))
TASK, DIGEST = TaskId(b"t" * 32), Digest(b"d" * 32)
STEP = CHUNK_BYTES + TAG_BYTES


@pytest.mark.rule("BLB-003")
@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
def test_bytes_come_back_and_encrypt_to_the_same_again(size: int) -> None:
    raw = bytes(range(256)) * (size // 256 + 1)
    secret = KEY.encrypt(TASK, DIGEST, raw[:size])
    assert len(secret) == KEY.encrypted_size(size)
    assert secret == KEY.encrypt(TASK, DIGEST, raw[:size])
    assert KEY.decrypt(TASK, DIGEST, secret) == raw[:size]
    assert decrypt_with(KEY.key_of(TASK, DIGEST), secret) == raw[:size]


@pytest.mark.rule("BLB-003")
@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw[:STEP],
        lambda raw: raw[STEP:],
        lambda raw: raw[STEP : 2 * STEP] + raw[:STEP] + raw[2 * STEP :],
        lambda raw: raw + raw[-STEP:],
        lambda raw: raw[:10] + bytes([raw[10] ^ 1]) + raw[11:],
        lambda raw: raw[:-1],
        lambda raw: b"",
    ],
)
def test_a_changed_ciphertext_is_not_decrypted(change: object) -> None:
    secret = KEY.encrypt(TASK, DIGEST, bytes(3 * CHUNK_BYTES))
    with pytest.raises(Corrupt, match="BLB-003"):
        KEY.decrypt(TASK, DIGEST, change(secret))  # type: ignore[operator]


@pytest.mark.rule("BLB-003")
def test_every_result_has_a_key_of_its_own() -> None:
    keys = {
        KEY.key_of(TASK, DIGEST),
        KEY.key_of(TaskId(b"u" * 32), DIGEST),
        KEY.key_of(TASK, Digest(b"e" * 32)),
        ArchiveKey(b"\1" * 32).key_of(TASK, DIGEST),
    }
    assert len(keys) == 4


@pytest.mark.rule("SEC-001")
def test_the_key_is_created_once_private_and_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "archive.key"
    key = ArchiveKey.load_or_create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert ArchiveKey.load_or_create(path).id == key.id
    assert path.read_text().strip() not in repr(key)
    with pytest.raises(TypeError):
        pickle.dumps(key)
    path.write_text("not a key")
    with pytest.raises(Unavailable, match="archive key"):
        ArchiveKey.load(path)
