"""Who is behind a forwarded connection: its socket has an abstract name that carries number and address.

gRPC shows that name as the peer of a call. No byte is added to the stream, which may be encrypted.
"""

from __future__ import annotations

from typing import Final

import msgspec

_PREFIX: Final = "holdfast-front"
_SCHEME: Final = "unix-abstract:"


class ForwardedPeer(msgspec.Struct, frozen=True):
    """A client of the front process."""

    number: int
    """Of the connection, in the order of their arrival."""
    address: str


def socket_name(token: str, peer: ForwardedPeer) -> bytes:
    """The name to bind before connecting. `token` tells apart the front processes of one machine."""
    return f"\0{_PREFIX}/{token}/{peer.number}/{peer.address}".encode("ascii", "replace")


def read_peer(peer: str) -> ForwardedPeer | None:
    """From the peer that gRPC names; None for a connection that was not forwarded."""
    parts = peer.removeprefix(_SCHEME).split("/", 3)
    if not peer.startswith(_SCHEME) or len(parts) != 4 or parts[0] != _PREFIX or not parts[2].isdecimal():
        return None
    return ForwardedPeer(int(parts[2]), parts[3])
