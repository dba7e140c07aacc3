"""The proof that a transaction is in a block, and its check with the proposer's key alone (CHN-001)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from holdfast.core.base.canonical import decode as decode_canonical
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


class TxProof(msgspec.Struct, frozen=True):
    """A transaction's leaf, its index, and the path up to the header's `tx_root` (RFC 6962)."""

    leaf: bytes
    index: int
    size: int
    path: list[Digest]


class ProvedTransaction(msgspec.Struct, frozen=True):
    """What a valid proof proves."""

    signed: SignedHeader
    kind: str
    event: int
    subject: bytes


def parse_tx_proof(values: object, where: str) -> tuple[SignedHeader, TxProof]:
    """A proof as `holdfast chain prove` prints it; Corrupt where it is not one."""
    if not isinstance(values, Mapping) or not {"chain_id", "block", "proof"} <= values.keys():
        raise unreadable(where, "not a proof: chain_id, block and proof are expected")
    chain_id = values["chain_id"]
    if not is_u64(chain_id):
        raise unreadable(where, "chain_id is not a number")
    signed, shown = parse_header(values["block"], f"{where}: block", chain_id), values["proof"]
    if not isinstance(shown, Mapping) or not isinstance(shown.get("path"), list):
        raise unreadable(where, "proof is not an object with leaf, index, size and path")
    index, size = shown.get("index"), shown.get("size")
    if type(index) is not int or type(size) is not int:
        raise unreadable(where, "index and size are not numbers")
    path = [Digest(parse_hex(step, f"{where}: path")) for step in shown["path"]]
    return signed, TxProof(parse_hex(shown.get("leaf"), f"{where}: leaf"), index, size, path)


def check_tx_proof(
    signed: SignedHeader, proof: TxProof, verify: VerifySignature, keys: Iterable[bytes] = ()
) -> ProvedTransaction:
    """CHN-001: a transaction is in a block that its proposer has signed; VerificationFailed names the first fault."""
    check_signed_header(signed, verify, keys)
    header = signed.header
    block = f"block {header.height}"
    if proof.size != header.tx_count:
        raise VerificationFailed(f"{block} has {header.tx_count} transactions, the proof is of {proof.size}")
    if not verify_inclusion(header.tx_root, proof.leaf, proof.index, proof.size, proof.path):
        raise VerificationFailed(f"the transaction is not in {block}")
    kind, event, subject, _ = _leaf(proof.leaf)
    return ProvedTransaction(signed, kind, event, subject)


def _leaf(raw: bytes) -> tuple[str, int, bytes, bytes]:
    """The fields of a leaf. It was hashed into a signed root: one that cannot be read is of a newer Holdfast."""
    try:
        return msgspec.convert(decode_canonical(raw), tuple[str, int, bytes, bytes], builtin_types=(bytes,))
    except ValueError as fault:
        raise unreadable("the proof's leaf", str(fault)) from fault
