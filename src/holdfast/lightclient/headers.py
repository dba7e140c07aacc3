"""Headers outside of a node: their text form, and the check of a chain of them (CHN-001, CHN-006).

A line is one header as a JSON object with its hash and its signature; bytes are lower-case hex.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeGuard, get_type_hints

import msgspec

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.values import U64_MAX, Digest, Height, VerifySignature
from holdfast.core.chain.header import Header, SignedHeader, header_hash, why_not_next

_HEX: Final = re.compile(r"(?:[0-9a-f]{2})*")
_HINTS: Final = {name: getattr(hint, "__supertype__", hint) for name, hint in get_type_hints(Header).items()}
FIELDS: Final = {**_HINTS, "hash": bytes, "signature": bytes}
"""The fields of a line: integers or bytes."""


# ------------------------------------------------------------------------------------------------ text


def encode_line(signed: SignedHeader) -> bytes:
    """A header as one line of JSON, without the newline."""
    values = {**msgspec.structs.asdict(signed.header), "hash": signed.hash, "signature": signed.signature}
    return msgspec.json.encode({name: v.hex() if isinstance(v, bytes) else v for name, v in values.items()})


def parse_line(raw: bytes, where: str) -> SignedHeader:
    """The header in a line; Corrupt where there is none."""
    try:
        values = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise unreadable(where, str(fault)) from fault
    return parse_header(values, where)


def parse_header(values: object, where: str, chain_id: int | None = None) -> SignedHeader:
    """The header in a JSON object. A block of the API has no chain id: it is passed separately."""
    if not isinstance(values, Mapping):
        raise unreadable(where, "not an object")
    fields: dict[str, Any] = {} if chain_id is None else {"chain_id": chain_id}
    for name in FIELDS.keys() - fields.keys():
        if name not in values:
            raise unreadable(where, f"{name} is missing")
        fields[name] = _value(name, values[name], where)
    hash_, signature = fields.pop("hash"), fields.pop("signature")
    return SignedHeader(Header(**fields), Digest(hash_), signature)


def _value(name: str, value: object, where: str) -> int | bytes:
    if FIELDS[name] is bytes:
        return parse_hex(value, f"{where}: {name}")
    if not is_u64(value):
        raise unreadable(where, f"{name} is not a number from 0 to 2⁶⁴ − 1")
    return value


def is_u64(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= U64_MAX


def parse_hex(value: object, where: str) -> bytes:
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise unreadable(where, "not lower-case hex")
    return bytes.fromhex(value)


def unreadable(where: str, reason: str, rule: str = "CHN-001", hint: str = "get another copy") -> Corrupt:
    return Corrupt(rule, f"{where} cannot be read: {reason}", hint)


# ------------------------------------------------------------------------------------------------ checking


class VerificationFailed(Exception):
    """A header or proof can be read and is false."""


def check_signed_header(signed: SignedHeader, verify: VerifySignature, keys: Iterable[bytes] = ()) -> None:
    """A header has its hash and the signature of its proposer, which is one of `keys` where some are given."""
    header, trusted = signed.header, frozenset(keys)
    if signed.hash != header_hash(header):
        raise VerificationFailed(f"block {header.height} does not match its hash")
    if not verify(header.proposer, signed.hash, signed.signature):
        raise VerificationFailed(f"block {header.height} is not signed by its proposer")
    if trusted and header.proposer not in trusted:
        raise VerificationFailed(_not_a_given_key(signed))


def _not_a_given_key(signed: SignedHeader) -> str:
    return (
        f"block {signed.header.height} is signed by {signed.header.proposer.hex()}, which is not one of the given keys"
    )


class HeaderChain:
    """Headers appended one by one, from genesis or a known header on, each checked against the one before (CHN-001)."""

    def __init__(self, start: SignedHeader, verify: VerifySignature, keys: Iterable[bytes] = ()) -> None:
        self.head = start
        self.proposers: dict[bytes, Height] = {}
        """The keys that signed, and the first block of each."""
        self.transactions = 0
        self._verify, self._keys = verify, frozenset(keys)

    def try_append(self, signed: SignedHeader) -> str | None:
        """Why this header cannot be the next one; None where it was appended."""
        height, proposer = signed.header.height, signed.header.proposer
        if reason := why_not_next(self.head, signed, self._verify):
            return reason
        if self._keys and proposer not in self._keys:
            return _not_a_given_key(signed)
        self.proposers.setdefault(proposer, height)
        self.transactions += signed.header.tx_count
        self.head = signed
        return None

    def append(self, signed: SignedHeader) -> None:
        """Append a header; VerificationFailed where it cannot be the next one."""
        if reason := self.try_append(signed):
            raise VerificationFailed(reason)
