"""Archive notices: the bytes that protobuf writes, roots that anyone recomputes, and what is refused (NTC-001)."""

from __future__ import annotations

from hashlib import sha256

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.archive.notice import ArchiveNotice, notice_body, notice_root
from holdfast.core.base.errors import Refused
from holdfast.wire.notices import decode_notice, encode_notice

FIELDS = [
    ("height", 1, 4),
    ("round", 2, 5),
    ("blob_index", 3, 13),
    ("kzg_commitment", 4, 12),
    ("blob_keccak", 5, 12),
    ("provider_id", 6, 9),
    ("locator", 7, 9),
    ("archived_by", 8, 11),
    ("archived_at", 9, 4),
    ("chain_id", 10, 4),
    ("versioned_hash", 11, 12),
]
"""Name, number and protobuf's type."""


def protobuf() -> type:
    file = descriptor_pb2.FileDescriptorProto(name="notice_test.proto", package="t", syntax="proto3")
    address = file.message_type.add(name="Address")
    address.field.add(name="value", number=1, type=12, label=1)
    body = file.message_type.add(name="Body")
    for name, number, type_ in FIELDS:
        field = body.field.add(name=name, number=number, type=type_, label=1)
        if type_ == 11:
            field.type_name = ".t.Address"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Body"))


BODY = protobuf()
NOTICES = st.builds(
    ArchiveNotice,
    version=st.just(1),
    height=st.integers(0, 2**64 - 1),
    round=st.integers(-1, 2**31 - 1),
    blob_index=st.integers(0, 2**32 - 1),
    kzg_commitment=st.binary(min_size=48, max_size=48),
    blob_keccak=st.binary(min_size=32, max_size=32),
    provider_id=st.text(max_size=20),
    locator=st.text(max_size=200),
    archived_by=st.binary(min_size=20, max_size=20),
    archived_at=st.integers(0, 2**64 - 1),
    chain_id=st.integers(0, 2**64 - 1),
    versioned_hash=st.binary(min_size=32, max_size=32),
    signature=st.binary(min_size=64, max_size=64),
)


@pytest.mark.rule("NTC-001")
@given(NOTICES, st.integers(0, 1))
def test_a_body_is_what_protobuf_writes(notice: ArchiveNotice, version: int) -> None:
    names = [name for name, number, _ in FIELDS if name != "archived_by" and (version or number < 10)]
    reference = BODY(**{name: getattr(notice, name) for name in names})
    reference.archived_by.value = notice.archived_by
    told = ArchiveNotice(**{name: getattr(notice, name) for name in (*names, "archived_by")}, version=version)
    assert notice_body(told) == reference.SerializeToString(deterministic=True)
    assert notice_root(told) == sha256(b"ArchiveNoticeV%d" % version + notice_body(told)).digest()


@pytest.mark.rule("NTC-001")
@given(NOTICES)
def test_a_notice_comes_back_as_it_was(notice: ArchiveNotice) -> None:
    assert decode_notice(encode_notice(notice)) == notice


@pytest.mark.rule("NTC-001")
@given(NOTICES, st.data())
def test_a_cut_notice_is_refused_and_never_raises(notice: ArchiveNotice, data: st.DataObject) -> None:
    raw = encode_notice(notice)
    cut = data.draw(st.integers(0, len(raw) - 1))
    assert isinstance(decode_notice(raw[:cut]), Refused)
    assert isinstance(decode_notice(raw + b"\x18\x01"), Refused)  # a field that no notice has


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_or_a_notice(raw: bytes) -> None:
    assert isinstance(decode_notice(raw), Refused | ArchiveNotice)
