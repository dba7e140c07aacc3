"""What nodes tell each other unasked (NTC-004): a notice, or the confirmation that one was stored.

0x01 ‖ notice (protobuf)
0x02 ‖ canonical([height, index, root, public key, signature])
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.archive.notice import ArchiveNotice
from holdfast.core.base.canonical import canonical
from holdfast.core.base.canonical import decode as decode_canonical
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Height
from holdfast.wire.notices import NOTICE_BYTES_MAX, decode_notice, encode_notice

_NOTICE, _CONFIRMATION = b"\1", b"\2"
MESSAGE_BYTES_MAX: Final = NOTICE_BYTES_MAX + 1


class NoticeConfirmation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A validator has stored the notice about a blob."""

    height: Height
    number: int
    root: bytes
    key: bytes
    signature: bytes


def encode_message(message: ArchiveNotice | NoticeConfirmation) -> bytes:
    if isinstance(message, ArchiveNotice):
        return _NOTICE + encode_notice(message)
    return _CONFIRMATION + canonical(list(msgspec.structs.astuple(message)))


def decode_message(raw: bytes) -> ArchiveNotice | NoticeConfirmation | Refused:
    kind, body = raw[:1], raw[1:]
    if kind == _NOTICE:
        return decode_notice(body)
    if kind != _CONFIRMATION or len(raw) > MESSAGE_BYTES_MAX:
        return Refused("NTC-004", f"{len(raw)} bytes that are no message of a peer", name="Malformed")
    try:
        return msgspec.convert(decode_canonical(body), NoticeConfirmation, builtin_types=(bytes,))
    except ValueError as fault:
        return Refused("NTC-004", f"a confirmation cannot be read: {fault}", name="Malformed")
