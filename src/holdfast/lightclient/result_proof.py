"""The proof that a result is in a block, checked with the proposer's key alone (RES-008)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from holdfast.core.base.canonical import decode as decode_canonical
from holdfast.core.base.errors import Corrupt
from holdfast.core.base.merkle import verify_inclusion
from holdfast.core.base.values import Digest, VerifySignature
from holdfast.core.chain.header import SignedHeader
from holdfast.lightclient.headers import (
    VerificationFailed,
    check_signed_header,
    is_u64,
    parse_header,
    parse_hex,
    unreadable,
)


class ResultLeaf(msgspec.Struct, frozen=True, array_like=True):
    """The leaf of a result, which the chain holds for ever."""

    task_id: bytes
    nullifier: bytes
    result_digest: bytes
    size: int
    da_commitment: bytes | None
    height: int


class ParsedResultProof(msgspec.Struct, frozen=True):
    """A proof as it was parsed."""

    signed: SignedHeader
    leaf: bytes
    index: int
    size: int
    path: list[Digest]


def parse(values: object, where: str) -> ParsedResultProof:
    """A proof as `holdfast result prove` prints it; Corrupt where it is not one."""
    if not isinstance(values, Mapping) or not {"chain_id", "block", "leaf", "index", "size", "path"} <= values.keys():
        raise _unreadable(where, "chain_id, block, leaf, index, size and path are expected")
    chain_id, index, size, path = (values[name] for name in ("chain_id", "index", "size", "path"))
    if not all(is_u64(number) for number in (chain_id, index, size)):
        raise _unreadable(where, "chain_id, index and size are numbers")
    if not isinstance(path, list):
        raise _unreadable(where, "path is a list")
    signed = parse_header(values["block"], f"{where}: block", chain_id)
    steps = [Digest(parse_hex(step, f"{where}: path")) for step in path]
    return ParsedResultProof(signed, parse_hex(values["leaf"], f"{where}: leaf"), index, size, steps)


def check(proof: ParsedResultProof, verify: VerifySignature, keys: Iterable[bytes] = ()) -> ResultLeaf:
    """The leaf that is proved; VerificationFailed names the first fault."""
    leaf, header = _leaf(proof.leaf), proof.signed.header
    check_signed_header(proof.signed, verify, keys)
    block = f"block {header.height}"
    if proof.size != header.result_count:
        raise VerificationFailed(f"{block} has {header.result_count} results, the proof is of {proof.size}")
    if leaf.height != header.height:
        raise VerificationFailed(f"the result is of block {leaf.height}, the header of {header.height}")
    if not verify_inclusion(header.result_root, proof.leaf, proof.index, proof.size, proof.path):
        raise VerificationFailed(f"the result is not in {block}")
    return leaf


def _leaf(raw: bytes) -> ResultLeaf:
    try:
        return msgspec.convert(decode_canonical(raw), ResultLeaf, builtin_types=(bytes,))
    except ValueError as fault:
        raise _unreadable("the proof's leaf", str(fault)) from fault


def _unreadable(where: str, reason: str) -> Corrupt:
    return unreadable(where, reason, "RES-008", "a proof is what `holdfast result prove` prints")
