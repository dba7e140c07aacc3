"""A result's proof outside of a node (RES-008): checked with the proposer's key alone, each falsehood by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from holdfast.core.canon import decode as decode_canonical
from holdfast.core.chain.header import Signed, Verify, header_hash
from holdfast.core.merkle import verify_inclusion
from holdfast.core.refusal import Corrupt
from holdfast.core.values import U64_MAX, Digest
from holdfast.engine.headers import Untrue, hex_bytes, read_values


class Leaf(msgspec.Struct, frozen=True, array_like=True):
    """What the chain holds of a result for ever."""

    task_id: bytes
    nullifier: bytes
    result_digest: bytes
    size: int
    da_commitment: bytes | None
    height: int


class Shown(msgspec.Struct, frozen=True):
    """A proof as it was read."""

    signed: Signed
    leaf: bytes
    index: int
    size: int
    path: list[Digest]


def read(values: object, where: str) -> Shown:
    """A proof as `holdfast result prove` prints it; Corrupt where it is none."""
    if not isinstance(values, Mapping) or not {"chain_id", "block", "leaf", "index", "size", "path"} <= values.keys():
        raise _unreadable(where, "chain_id, block, leaf, index, size and path are expected")
    chain_id, index, size, path = (values[name] for name in ("chain_id", "index", "size", "path"))
    if any(type(number) is not int or not 0 <= number <= U64_MAX for number in (chain_id, index, size)):
        raise _unreadable(where, "chain_id, index and size are numbers")
    if not isinstance(path, list):
        raise _unreadable(where, "path is a list")
    signed = read_values(values["block"], f"{where}: block", chain_id)
    steps = [Digest(hex_bytes(step, f"{where}: path")) for step in path]
    return Shown(signed, hex_bytes(values["leaf"], f"{where}: leaf"), index, size, steps)


def check(shown: Shown, verify: Verify, keys: Iterable[bytes] = ()) -> Leaf:
    """What is proved; Untrue with the first thing that is not so."""
    signed, named = shown.signed, frozenset(keys)
    header = signed.header
    block = f"block {header.height}"
    leaf = _leaf(shown.leaf)
    checks = (
        (signed.hash == header_hash(header), f"{block} does not have the hash it is shown with"),
        (verify(header.proposer, signed.hash, signed.signature), f"{block} is not signed by its proposer"),
        (not named or header.proposer in named, f"{block} is signed by {header.proposer.hex()}, whom nobody named"),
        (shown.size == header.result_count, f"{block} has {header.result_count} results, the proof is of {shown.size}"),
        (leaf.height == header.height, f"the result is of block {leaf.height}, the header of {header.height}"),
        (
            verify_inclusion(header.result_root, shown.leaf, shown.index, shown.size, shown.path),
            f"the result is not in {block}",
        ),
    )
    for holds, says in checks:
        if not holds:
            raise Untrue(says)
    return leaf


def _leaf(raw: bytes) -> Leaf:
    try:
        return msgspec.convert(decode_canonical(raw), Leaf, builtin_types=(bytes,))
    except ValueError as fault:
        raise _unreadable("the proof's leaf", str(fault)) from fault


def _unreadable(where: str, says: str) -> Corrupt:
    return Corrupt("RES-008", f"{where} cannot be read: {says}", "a proof is what `holdfast result prove` prints")
