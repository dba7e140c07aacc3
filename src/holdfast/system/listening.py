"""A listening socket of this machine."""

from __future__ import annotations

import socket
from typing import Final

BACKLOG: Final = 1_024


def listen_on(host: str, port: int) -> socket.socket:
    """A socket that listens at the first address of this name; port 0 takes a free one. OSError where it is in use."""
    family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
        0
    ]
    sock = socket.socket(family, kind, number)  # with the protocol named: else asyncio leaves Nagle's delay on
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)  # at once: bound sockets alone could share a port
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock
