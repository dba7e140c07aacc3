"""One signature over several messages: each is verified alone, and none by a signature that was made for others."""

from __future__ import annotations

from random import Random

import pytest

from holdfast.adapters.keys.signing import SigningKey, verify
from holdfast.core.base import merkle
from holdfast.wire.group_signatures import GROUP_MAX, GroupVerifier, sign_group, verify_signature

pytestmark = pytest.mark.rule("PRV-003")
KEY = SigningKey.from_seed(b"oak" + bytes(29))


class CountingSigner:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, message: bytes) -> bytes:
        self.count += 1
        return KEY.sign(message)


def some(count: int) -> list[bytes]:
    return [f"message {n}".encode() for n in range(count)]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 64, 100])
def test_each_message_of_a_group_is_verified_without_the_others(count: int) -> None:
    sign, messages = CountingSigner(), some(count)
    signatures = sign_group(sign, messages)
    assert len(signatures) == count
    assert all(map(verify_signature, [verify] * count, [KEY.public] * count, messages, signatures))
    assert sign.count == min(count, 1)


def test_a_message_that_is_signed_alone_has_a_plain_signature() -> None:
    assert sign_group(KEY.sign, [b"alone"]) == [KEY.sign(b"alone")]


def test_more_messages_than_a_group_holds_are_several_groups() -> None:
    sign, messages = CountingSigner(), some(GROUP_MAX + 2)
    signatures = sign_group(sign, messages)
    assert sign.count == 2
    for at in (0, GROUP_MAX - 1, GROUP_MAX, GROUP_MAX + 1):
        assert verify_signature(verify, KEY.public, messages[at], signatures[at])


def test_a_signature_is_of_its_own_message_alone() -> None:
    messages = some(5)
    signatures = sign_group(KEY.sign, messages)
    for one in range(5):
        for other in range(5):
            assert verify_signature(verify, KEY.public, messages[one], signatures[other]) is (one == other)
    assert not verify_signature(verify, SigningKey.generate().public, messages[0], signatures[0])


def test_no_changed_byte_is_accepted() -> None:
    random, messages = Random(7), some(6)
    signature = sign_group(KEY.sign, messages)[3]
    for at in range(len(signature)):
        changed = bytearray(signature)
        changed[at] ^= 1 << random.randrange(8)
        assert not verify_signature(verify, KEY.public, messages[3], bytes(changed)), at
    for cut in range(len(signature)):
        assert not verify_signature(verify, KEY.public, messages[3], signature[:cut])
    assert not verify_signature(verify, KEY.public, messages[3], signature + bytes(32))


def test_an_inner_node_does_not_pass_for_a_message() -> None:
    """A leaf and a node are hashed with different prefixes, so that a subtree is no message."""
    messages = some(4)
    signature = sign_group(KEY.sign, messages)[0]
    subtree = merkle.leaf_hash(messages[0]) + merkle.leaf_hash(messages[1])
    shorter = signature[:64] + b"\x00\x00\x00\x02" + signature[68 + 32 :]
    assert not verify_signature(verify, KEY.public, subtree, shorter)


def test_the_signature_of_a_group_is_computed_once() -> None:
    calls: list[bytes] = []

    def counted(public: bytes, message: bytes, signature: bytes) -> bool:
        calls.append(message)
        return verify(public, message, signature)

    group = GroupVerifier(counted)
    messages = some(50)
    for message, signature in zip(messages, sign_group(KEY.sign, messages), strict=True):
        assert group(KEY.public, message, signature)
    assert len(calls) == 1
    assert not group(KEY.public, b"another", sign_group(KEY.sign, messages)[0])
    assert group(KEY.public, b"alone", KEY.sign(b"alone"))
