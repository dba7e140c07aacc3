"""One signature over several messages (PRV-003), so that each message can still be verified without the others.

The messages are the leaves of a Merkle tree (RFC 6962), and the key signs its root. The signature of one message is the
signature of the root, followed by the message's index, the number of messages, and its path to the root. So it lies in
an evidence record like any signature, and no border between batches matters. A message that is signed alone has a
plain signature of 64 bytes.

```
signature := Ed25519 over the message                                                             64 bytes
           | Ed25519 over H("holdfast.group.v1", root, count) ‖ u16be index ‖ u16be count ‖ path  68 + 32·depth bytes
```
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from holdfast.core.base import merkle
from holdfast.core.base.canonical import H
from holdfast.core.base.values import Digest, VerifySignature

GROUP_TAG: Final = "holdfast.group.v1"
GROUP_MAX: Final = 1_024
"""Messages under one signature."""
SIGNATURE_BYTES: Final = 64
_PLACE: Final = Struct(">HH")
_PATH_AT: Final = SIGNATURE_BYTES + _PLACE.size
Sign = Callable[[bytes], bytes]


def sign_group(sign: Sign, messages: Sequence[bytes]) -> list[bytes]:
    """A signature for each message, from one signature of the key for every `GROUP_MAX` of them."""
    signatures: list[bytes] = []
    for begin in range(0, len(messages), GROUP_MAX):
        signatures += _sign_tree(sign, messages[begin : begin + GROUP_MAX])
    return signatures


def _sign_tree(sign: Sign, messages: Sequence[bytes]) -> list[bytes]:
    if len(messages) == 1:
        return [sign(messages[0])]
    root, paths = _tree(messages)
    signature, count = sign(_to_sign(root, len(messages))), len(messages)
    return [signature + _PLACE.pack(index, count) + b"".join(path) for index, path in enumerate(paths)]


def _tree(leaves: Sequence[bytes]) -> tuple[Digest, list[list[Digest]]]:
    """The root, and the path of each leaf, from the leaf upwards: level by level, as RFC 6962 splits the leaves."""
    level = [merkle.leaf_hash(leaf) for leaf in leaves]
    paths: list[list[Digest]] = [[] for _ in leaves]
    members = [[index] for index in range(len(leaves))]
    while len(level) > 1:
        above, above_members = [], []
        for left in range(0, len(level) - 1, 2):
            for index in members[left]:
                paths[index].append(level[left + 1])
            for index in members[left + 1]:
                paths[index].append(level[left])
            above.append(merkle.node_hash(level[left], level[left + 1]))
            above_members.append(members[left] + members[left + 1])
        if len(level) % 2:
            above.append(level[-1])
            above_members.append(members[-1])
        level, members = above, above_members
    return level[0], paths


def _to_sign(root: bytes, count: int) -> bytes:
    return H(GROUP_TAG, root, count)


class GroupVerifier:
    """Verifies plain signatures and those of groups; the signature of one group is computed once."""

    def __init__(self, verify: VerifySignature) -> None:
        self._verify = verify
        self._roots: dict[tuple[bytes, bytes, bytes], bool] = {}

    def __call__(self, public: bytes, message: bytes, signature: bytes) -> bool:
        signed_root = None if len(signature) == SIGNATURE_BYTES else _signed_root(message, signature)
        if signed_root is None:  # a plain signature, or a malformed one
            return self._verify(public, message, signature)
        key = (public, signed_root, signature[:SIGNATURE_BYTES])
        if key not in self._roots:
            self._roots[key] = self._verify(*key)
        return self._roots[key]


def verify_signature(verify: VerifySignature, public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the key has signed this message, alone or in a group."""
    return GroupVerifier(verify)(public, message, signature)


def _signed_root(message: bytes, signature: bytes) -> bytes | None:
    """What the key must have signed; None where the signature is malformed."""
    path_bytes = len(signature) - _PATH_AT
    if path_bytes < 0 or path_bytes % merkle.HASH_BYTES:
        return None
    index, count = _PLACE.unpack_from(signature, SIGNATURE_BYTES)
    if not index < count or count > GROUP_MAX:
        return None
    path = [Digest(signature[at : at + merkle.HASH_BYTES]) for at in range(_PATH_AT, len(signature), merkle.HASH_BYTES)]
    root = merkle.root_from_inclusion(message, index, count, path)
    return None if root is None else _to_sign(root, count)
