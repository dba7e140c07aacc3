"""Packages of blocks as bytes (SYN-001): `canonical([1, kind, header, payload or null, sidecars, receipts])`.

A header is its line of JSON, a notice its protobuf. A receipt that is missing is null.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.core.archive.notice import ArchiveNotice
from holdfast.core.base.canonical import canonical
from holdfast.core.base.canonical import decode as decode_canonical
from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.values import Digest
from holdfast.core.chain.header import Header, SignedHeader
from holdfast.core.sync.package import (
    MALFORMED,
    ArchivedBlob,
    ArchiveReceipt,
    BlobSidecar,
    BlockPackage,
    PackageKind,
    decode_payload,
    encode_payload,
)
from holdfast.wire.notices import decode_notice, encode_notice

VERSION: Final = 1
PACKAGE_BYTES_MAX: Final = 640 << 20
"""A block has at most 4 096 blobs of 128 KiB."""


class _Outer(msgspec.Struct, frozen=True, array_like=True):
    version: int
    kind: PackageKind
    header: tuple[Any, ...]
    payload: bytes | None
    sidecars: tuple[tuple[bytes, bytes], ...]
    receipts: tuple[tuple[str, str, bytes] | None, ...]


def encode_package(package: BlockPackage) -> bytes:
    signed = package.signed
    header = [*msgspec.structs.astuple(signed.header), signed.hash, signed.signature]
    payload = None if package.payload is None else encode_payload(package.payload)
    sidecars = [[sidecar.raw, sidecar.proof] for sidecar in package.sidecars]
    return canonical([VERSION, package.kind.value, header, payload, sidecars, [_receipt(e) for e in package.archived]])


def _receipt(each: ArchivedBlob | None) -> list[object] | None:
    if each is None:
        return None
    return [each.receipt.storage_id, each.receipt.provider_id, encode_notice(each.notice)]


def decode_package(raw: bytes) -> BlockPackage | Refused:
    """Its shape alone: nothing in it is believed before `check_package`."""
    if len(raw) > PACKAGE_BYTES_MAX:
        return _refuse(f"{len(raw)} bytes, at most {PACKAGE_BYTES_MAX}")
    try:
        outer = msgspec.convert(decode_canonical(raw), _Outer, builtin_types=(bytes,))
        if outer.version != VERSION:
            return _refuse(f"version {outer.version}, not {VERSION}")
        *fields, hash_, signature = outer.header
        header = msgspec.convert(fields, Header, builtin_types=(bytes,))
        signed = SignedHeader(header, Digest(_bytes(hash_)), _bytes(signature))
        payload = None if outer.payload is None else decode_payload(outer.payload)
        archived = tuple(_archived(each) for each in outer.receipts)
    except (ValueError, Corrupt) as fault:
        return _refuse(str(fault))
    sidecars = tuple(BlobSidecar(*each) for each in outer.sidecars)
    return BlockPackage(kind=outer.kind, signed=signed, payload=payload, sidecars=sidecars, archived=archived)


def _archived(each: tuple[str, str, bytes] | None) -> ArchivedBlob | None:
    if each is None:
        return None
    notice = decode_notice(each[2])
    if isinstance(notice, Refused):
        raise ValueError(notice.message)
    return ArchivedBlob(ArchiveReceipt(each[0], each[1]), notice)


def notices_of(package: BlockPackage) -> list[bytes]:
    """The notices of a package, as they are stored."""
    return [_encoded(each) for each in package.archived]


def _encoded(each: ArchivedBlob | None) -> bytes:
    notice: ArchiveNotice | None = None if each is None else each.notice
    return b"" if notice is None else encode_notice(notice)


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a hash that is not bytes")
    return value


def _refuse(reason: str) -> Refused:
    return Refused("SYN-001", f"a package cannot be read: {reason}", "another peer is asked", MALFORMED)
