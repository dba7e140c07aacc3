"""Packages and messages of peers as bytes: what is encoded is decoded, and no other bytes are believed or crash."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.archive.notice import ArchiveNotice
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import ChainId, Digest, Height, Network
from holdfast.core.chain.header import genesis_signed
from holdfast.core.sync.package import (
    ArchivedBlob,
    ArchiveReceipt,
    BlobSidecar,
    BlockPackage,
    BlockPayload,
    PackageKind,
)
from holdfast.wire.packages import decode_package, encode_package, notices_of
from holdfast.wire.peer_messages import NoticeConfirmation, decode_message, encode_message

NOTICE = ArchiveNotice(
    version=1,
    height=Height(7),
    blob_index=1,
    kzg_commitment=bytes(range(48)),
    blob_keccak=Digest(b"\5" * 32),
    provider_id="file",
    locator="file:x/items/y",
    archived_by=b"\1" * 20,
    archived_at=9,
    chain_id=ChainId(1),
    versioned_hash=b"\2" * 32,
    signature=b"\3" * 64,
)
SIGNED = genesis_signed(ChainId(1), Network.DEVELOPMENT)
PAYLOAD = BlockPayload((b"tx",), (b"result", b""), (b"blob",))
PACKAGES = [
    BlockPackage(kind=PackageKind.METADATA_ONLY, signed=SIGNED),
    BlockPackage(kind=PackageKind.FULL, signed=SIGNED, payload=PAYLOAD, sidecars=(BlobSidecar(b"raw", b"proof"),)),
    BlockPackage(
        kind=PackageKind.ARCHIVED,
        signed=SIGNED,
        payload=PAYLOAD,
        archived=(ArchivedBlob(ArchiveReceipt("file:x/items/y", "file"), NOTICE), None),
    ),
]


@pytest.mark.rule("SYN-001")
@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.kind.value)
def test_a_package_is_decoded_as_it_was_and_any_cut_of_it_is_refused(package: BlockPackage) -> None:
    raw = encode_package(package)
    assert decode_package(raw) == package
    for cut in range(len(raw)):
        refused = decode_package(raw[:cut])
        assert isinstance(refused, Refused)
        assert refused.name == "Malformed"
    assert isinstance(decode_package(raw + b"\0"), Refused)
    assert [len(each) > 0 for each in notices_of(package)] == [each is not None for each in package.archived]


@pytest.mark.rule("SYN-001", "NTC-004")
@given(st.binary(max_size=200), st.integers(0, 2), st.data())
def test_arbitrary_and_changed_bytes_are_refused_or_read_never_raised(
    raw: bytes, which: int, data: st.DataObject
) -> None:
    good = encode_package(PACKAGES[which])
    place = data.draw(st.integers(0, len(good) - 1))
    changed = good[:place] + raw[:3] + good[place + 1 :]
    assert isinstance(decode_package(changed), BlockPackage | Refused)
    assert isinstance(decode_package(raw), BlockPackage | Refused)
    assert isinstance(decode_message(raw), ArchiveNotice | NoticeConfirmation | Refused)


@pytest.mark.rule("NTC-004")
def test_messages_are_decoded_as_they_were() -> None:
    confirmation = NoticeConfirmation(Height(7), 1, b"\4" * 32, b"\5" * 32, b"\6" * 64)
    for message in (NOTICE, confirmation):
        assert decode_message(encode_message(message)) == message
    assert isinstance(decode_message(b""), Refused)
    assert isinstance(decode_message(b"\2" + bytes(20_000)), Refused)
