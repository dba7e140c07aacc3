"""The node's signing key: created once, private to its user, never shown; its signatures verify."""

from __future__ import annotations

import json
import os
import pickle
import stat
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.keys.secret_file import BYTES_MAX, read_secret, write_new
from holdfast.adapters.keys.signing import SigningKey, verify
from holdfast.core.base.errors import Unavailable

pytestmark = pytest.mark.rule("SEC-001")
SEED = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
PUBLIC = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "node.key"


# ------------------------------------------------------------------------------------------------ signing


def test_signatures_are_those_of_rfc_8032() -> None:
    key = SigningKey.from_seed(SEED)
    assert key.public == PUBLIC
    assert key.sign(b"").hex() == (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )


@given(st.binary(), st.integers(0, 63), st.integers(0, 7))
def test_a_signature_holds_for_its_message_and_for_no_other(message: bytes, byte: int, bit: int) -> None:
    key = SigningKey.from_seed(SEED)
    signature = key.sign(message)
    bent = bytearray(signature)
    bent[byte] ^= 1 << bit
    assert len(signature) == 64
    assert verify(key.public, message, signature)
    assert not verify(key.public, message + b"x", signature)
    assert not verify(key.public, message, bytes(bent))
    assert not verify(SigningKey.generate().public, message, signature)


@given(st.binary(max_size=40), st.binary(max_size=80))
def test_malformed_keys_and_signatures_never_verify(public: bytes, signature: bytes) -> None:
    assert not verify(public, b"message", signature)
    assert not verify(PUBLIC, b"message", signature)


# ------------------------------------------------------------------------------------------------ keeping


def test_a_key_is_made_once_and_found_again(path: Path) -> None:
    first = SigningKey.load_or_create(path)
    assert SigningKey.load_or_create(path).public == SigningKey.load(path).public == first.public
    assert SigningKey.load_or_create(path.with_name("other")).public != first.public


def test_a_key_file_and_its_folder_are_for_their_user_alone(path: Path) -> None:
    before = os.umask(0)
    try:
        SigningKey.load_or_create(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["node.key"]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_file_has_the_mode_it_was_given_whatever_the_umask(tmp_path: Path, mode: int, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_new(tmp_path / "x", b"x", mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == mode


def test_a_key_that_many_make_at_once_is_one_key(path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: SigningKey.load_or_create(path).public, range(32)))
    assert len(set(keys)) == 1


def test_a_key_is_synced_before_it_has_its_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, link = os.fsync, Path.hardlink_to

    def synced(file: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "file")
        fsync(file)

    def named(self: Path, target: Path) -> None:
        done.append("name")
        link(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "hardlink_to", named)
    SigningKey.load_or_create(path)
    assert done == ["file", "name", "folder"]


@pytest.mark.parametrize("fails", ["fsync", "write"])
def test_a_key_that_cannot_be_made_durable_is_not_made(path: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, fails, broken)
    with pytest.raises(Unavailable, match=r"SEC-001: .*cannot be written: No space left"):
        SigningKey.load_or_create(path)
    monkeypatch.undo()
    assert list(path.parent.iterdir()) == []


def test_what_is_there_is_never_overwritten(path: Path) -> None:
    assert write_new(path, b"first")
    assert not write_new(path, b"second")
    assert read_secret(path) == b"first"


# ------------------------------------------------------------------------------------------------ refusing


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o700])
def test_a_key_that_only_its_user_can_use_is_loaded(path: Path, mode: int) -> None:
    made = SigningKey.load_or_create(path)
    path.chmod(mode)
    assert SigningKey.load(path).public == made.public


@pytest.mark.parametrize("bit", [0o040, 0o020, 0o010, 0o004, 0o002, 0o001])
def test_a_key_that_others_can_use_is_refused_with_what_to_do(path: Path, bit: int) -> None:
    SigningKey.load_or_create(path)
    path.chmod(0o600 | bit)
    with pytest.raises(Unavailable, match=rf"SEC-001: .*\(mode {0o600 | bit:04o}\)") as caught:
        SigningKey.load_or_create(path)
    assert caught.value.hint == f"chmod 600 {path}"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_key_of_another_user_is_refused(path: Path) -> None:
    SigningKey.load_or_create(path)
    os.chown(path, 65534, 65534)
    with pytest.raises(Unavailable, match=r"SEC-001: .*belongs to another user"):
        SigningKey.load(path)


def test_a_link_out_of_the_folder_is_refused_one_within_it_is_followed(path: Path, tmp_path: Path) -> None:
    made = SigningKey.load_or_create(path)
    within, without = path.with_name("renewed.key"), tmp_path / "other" / "node.key"
    within.symlink_to("node.key")
    without.parent.mkdir()
    without.symlink_to(path)
    assert SigningKey.load(within).public == made.public
    for load in (SigningKey.load, SigningKey.load_or_create):
        with pytest.raises(Unavailable, match=r"SEC-001: .*leads out of its folder"):
            load(without)


def test_a_link_that_leads_nowhere_is_refused_and_nothing_is_made_there(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    loop, dangling = path.with_name("loop"), path.with_name("dangling")
    loop.symlink_to(loop)
    dangling.symlink_to("gone")
    for link in (loop, dangling):
        with pytest.raises(Unavailable, match="SEC-001"):
            SigningKey.load_or_create(link)
    assert {entry.name for entry in path.parent.iterdir()} == {"loop", "dangling"}


def test_a_file_that_is_too_large_for_a_key_is_not_read(path: Path) -> None:
    write_new(path, b"x" * BYTES_MAX)
    assert len(read_secret(path)) == BYTES_MAX
    path.write_bytes(b"x" * (BYTES_MAX + 1))
    with pytest.raises(Unavailable, match=r"SEC-001: .*is larger than"):
        read_secret(path)


PEM = b"-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize("raw", [b"", b"\xff\xfe", b"secret words", PEM % b"c2VjcmV0IHdvcmRz"])
def test_a_malformed_key_is_refused_and_nothing_of_it_is_revealed(path: Path, raw: bytes) -> None:
    write_new(path, raw)
    with pytest.raises(Unavailable) as caught:
        SigningKey.load_or_create(path)
    said = "".join(traceback.format_exception(caught.value))
    assert caught.value.rule == "SEC-001"
    assert "secret words" not in said
    assert "c2VjcmV0" not in said
    assert path.read_bytes() == raw


def test_a_key_of_another_kind_is_refused(path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    other = generate_private_key(SECP256R1())
    write_new(path, other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(Unavailable, match=r"SEC-001: .*does not hold an Ed25519 key"):
        SigningKey.load(path)


def test_what_is_no_file_is_refused(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(Unavailable, match=r"SEC-001: .*is not a file"):
        SigningKey.load_or_create(path)
    pipe = path / "pipe"
    os.mkfifo(pipe, 0o600)
    with pytest.raises(Unavailable, match=r"SEC-001: .*is not a file"):
        SigningKey.load(pipe)
    with pytest.raises(Unavailable, match=r"SEC-001: .*cannot be read: No such file"):
        SigningKey.load(path / "none")


def test_a_key_shows_its_public_half_only() -> None:
    key = SigningKey.from_seed(SEED)
    shown = repr(key) + str(key) + f"{key}" + json.dumps(str(dir(key)))
    assert PUBLIC.hex() in shown
    assert SEED.hex() not in shown
    assert not hasattr(key, "__dict__")
    with pytest.raises(TypeError, match="stays in its process"):
        pickle.dumps(key)
