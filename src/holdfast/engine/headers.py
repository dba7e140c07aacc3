"""Headers outside of a node: as text that anybody can read, and checked link by link without a node (CHN-001, CHN-006).

A line is one header as a JSON object with its hash and its signature; bytes are lower-case hex.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, get_type_hints

import msgspec

from holdfast.core.canon import decode as decode_canonical
from holdfast.core.chain.header import Header, Signed, Verify, genesis_signed, header_hash, why_not_next
from holdfast.core.merkle import verify_inclusion
from holdfast.core.refusal import Corrupt
from holdfast.core.values import U64_MAX, ChainId, Digest, Height
from holdfast.engine.light import TxProof

_HEX: Final = re.compile(r"(?:[0-9a-f]{2})*")
_HINTS: Final = {name: getattr(hint, "__supertype__", hint) for name, hint in get_type_hints(Header).items()}
FIELDS: Final = {**_HINTS, "hash": bytes, "signature": bytes}
"""What stands in a line, and whether it is a number or bytes."""


# ------------------------------------------------------------------------------------------------ text


def line_of(signed: Signed) -> bytes:
    """A header as one line of JSON, without its end."""
    values = {**msgspec.structs.asdict(signed.header), "hash": signed.hash, "signature": signed.signature}
    return msgspec.json.encode({name: v.hex() if isinstance(v, bytes) else v for name, v in values.items()})


def read_line(raw: bytes, where: str) -> Signed:
    """The header that a line spells; Corrupt where it spells none."""
    try:
        values = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise _unreadable(where, str(fault)) from fault
    return read_values(values, where)


def read_values(values: object, where: str, chain_id: int | None = None) -> Signed:
    """The same of an object; a block as the doors show it does not say its chain's id."""
    if not isinstance(values, Mapping):
        raise _unreadable(where, "not an object")
    found: dict[str, Any] = {} if chain_id is None else {"chain_id": chain_id}
    for name in FIELDS.keys() - found.keys():
        if name not in values:
            raise _unreadable(where, f"{name} is missing")
        found[name] = _value(name, values[name], where)
    hash_, signature = found.pop("hash"), found.pop("signature")
    return Signed(Header(**found), Digest(hash_), signature)


def _value(name: str, value: object, where: str) -> int | bytes:
    if FIELDS[name] is bytes:
        return hex_bytes(value, f"{where}: {name}")
    if type(value) is not int or not 0 <= value <= U64_MAX:
        raise _unreadable(where, f"{name} is not a number from 0 to 2⁶⁴ − 1")
    return value


def hex_bytes(value: object, where: str) -> bytes:
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise _unreadable(where, "not lower-case hex")
    return bytes.fromhex(value)


def _unreadable(where: str, says: str) -> Corrupt:
    return Corrupt("CHN-001", f"{where} cannot be read: {says}", "get another copy")


# ------------------------------------------------------------------------------------------------ checking


class Untrue(Exception):
    """What is shown can be read and is not true."""


class Links:
    """Takes one header after the other from genesis on and says which is the first that does not fit (CHN-001)."""

    def __init__(self, chain_id: ChainId, verify: Verify, keys: Iterable[bytes] = (), at: Signed | None = None) -> None:
        self.head = at or genesis_signed(chain_id)
        self.proposers: dict[bytes, Height] = {}
        """Who has signed, and the first block of each."""
        self.transactions = 0
        self._verify, self._keys = verify, frozenset(keys)

    def why_not(self, signed: Signed) -> str | None:
        """Why this header cannot be the next one; None where it was taken."""
        height, proposer = signed.header.height, signed.header.proposer
        if no := why_not_next(self.head, signed, self._verify):
            return no
        if self._keys and proposer not in self._keys:
            return f"block {height} is signed by {proposer.hex()}, whom nobody named"
        self.proposers.setdefault(proposer, height)
        self.transactions += signed.header.tx_count
        self.head = signed
        return None

    def take(self, signed: Signed) -> None:
        """The same, raised."""
        if no := self.why_not(signed):
            raise Untrue(no)


class Proved(msgspec.Struct, frozen=True):
    """What a proof says when it is good."""

    signed: Signed
    kind: str
    event: int
    subject: bytes


def read_proof(values: object, where: str) -> tuple[Signed, TxProof]:
    """A proof as `holdfast chain prove` prints it; Corrupt where it is none."""
    if not isinstance(values, Mapping) or not {"chain_id", "block", "proof"} <= values.keys():
        raise _unreadable(where, "not a proof: chain_id, block and proof are expected")
    chain_id = values["chain_id"]
    if type(chain_id) is not int or not 0 <= chain_id <= U64_MAX:
        raise _unreadable(where, "chain_id is not a number")
    signed, shown = read_values(values["block"], f"{where}: block", chain_id), values["proof"]
    if not isinstance(shown, Mapping) or not isinstance(shown.get("path"), list):
        raise _unreadable(where, "proof is not an object with leaf, index, size and path")
    index, size = shown.get("index"), shown.get("size")
    if type(index) is not int or type(size) is not int:
        raise _unreadable(where, "index and size are not numbers")
    path = [Digest(hex_bytes(step, f"{where}: path")) for step in shown["path"]]
    return signed, TxProof(hex_bytes(shown.get("leaf"), f"{where}: leaf"), index, size, path)


def check_proof(signed: Signed, proof: TxProof, verify: Verify, keys: Iterable[bytes] = ()) -> Proved:
    """CHN-001: a transaction is in a block that its proposer has signed; Untrue with the first thing that is not so."""
    header, named = signed.header, frozenset(keys)
    block = f"block {header.height}"
    checks = (
        (signed.hash == header_hash(header), f"{block} does not have the hash it is shown with"),
        (verify(header.proposer, signed.hash, signed.signature), f"{block} is not signed by its proposer"),
        (not named or header.proposer in named, f"{block} is signed by {header.proposer.hex()}, whom nobody named"),
        (proof.size == header.tx_count, f"{block} has {header.tx_count} transactions, the proof is of {proof.size}"),
        (
            verify_inclusion(header.tx_root, proof.leaf, proof.index, proof.size, proof.path),
            f"the transaction is not in {block}",
        ),
    )
    for holds, says in checks:
        if not holds:
            raise Untrue(says)
    kind, event, subject, _ = _leaf(proof.leaf)
    return Proved(signed, kind, event, subject)


def _leaf(raw: bytes) -> tuple[str, int, bytes, bytes]:
    """What a leaf says; it was hashed into a signed root, so only a newer Holdfast can have made it otherwise."""
    try:
        return msgspec.convert(decode_canonical(raw), tuple[str, int, bytes, bytes], builtin_types=(bytes,))
    except ValueError as fault:
        raise _unreadable("the proof's leaf", str(fault)) from fault
