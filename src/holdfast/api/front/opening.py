"""The first bytes of a connection: only a client that speaks the protocol is forwarded (SEC-002)."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""How every HTTP/2 client begins."""
_TLS_HEADER_BYTES: Final = 5
_TLS_HANDSHAKE, _TLS_MAJOR = 0x16, 3
_TLS_RECORD_BYTES_MAX: Final = 1 << 14


class Opening(Enum):
    """What the first bytes are."""

    INCOMPLETE = auto()
    COMPLETE = auto()
    FOREIGN = auto()
    """Of another protocol."""


def check_opening(head: bytes, *, is_tls: bool) -> Opening:
    """Whether these bytes begin with the HTTP/2 preface, or with a whole TLS record of a handshake."""
    if not is_tls:
        if not PREFACE.startswith(head[: len(PREFACE)]):
            return Opening.FOREIGN
        return Opening.COMPLETE if len(head) >= len(PREFACE) else Opening.INCOMPLETE
    if head[:1] not in (b"", bytes([_TLS_HANDSHAKE])) or head[1:2] not in (b"", bytes([_TLS_MAJOR])):
        return Opening.FOREIGN
    if len(head) < _TLS_HEADER_BYTES:
        return Opening.INCOMPLETE
    size = int.from_bytes(head[3:5], "big")
    if not 0 < size <= _TLS_RECORD_BYTES_MAX:
        return Opening.FOREIGN
    return Opening.COMPLETE if len(head) >= _TLS_HEADER_BYTES + size else Opening.INCOMPLETE
