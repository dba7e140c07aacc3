"""The proof that the log of results only grew between two blocks (RFC 6962), checked with their signed headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.merkle import verify_consistency
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


def parse(values: object, where: str) -> tuple[SignedHeader, SignedHeader, list[Digest]]:
    """A proof as `holdfast chain prove-consistency` prints it; Corrupt where it is not one."""
    if not isinstance(values, Mapping) or not {"chain_id", "first", "second", "path"} <= values.keys():
        raise _unreadable(where, "chain_id, first, second and path are expected")
    chain_id, path = values["chain_id"], values["path"]
    if not is_u64(chain_id) or not isinstance(path, list):
        raise _unreadable(where, "chain_id is a number and path a list")
    first, second = (parse_header(values[name], f"{where}: {name}", chain_id) for name in ("first", "second"))
    return first, second, [Digest(parse_hex(step, f"{where}: path")) for step in path]


def check(
    first: SignedHeader, second: SignedHeader, path: list[Digest], verify: VerifySignature, keys: Iterable[bytes] = ()
) -> None:
    """RES-008: both headers are signed, and the log of the first is the beginning of the log of the second."""
    trusted = frozenset(keys)
    for signed in (first, second):
        check_signed_header(signed, verify, trusted)
    old, new = first.header, second.header
    if not verify_consistency(old.log_size, old.log_root, new.log_size, new.log_root, path):
        raise VerificationFailed(f"the log of block {old.height} is not the beginning of that of block {new.height}")


def _unreadable(where: str, reason: str) -> Corrupt:
    return unreadable(where, reason, "RES-008", "a proof is what `holdfast chain prove-consistency` prints")
