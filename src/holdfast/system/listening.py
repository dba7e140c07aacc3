"""A listening socket of this machine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

BACKLOG: Final = 4_096
"""What the kernel may hold; it takes the lower one of this and `net.core.somaxconn`."""
ACCEPTS_PER_TURN: Final = 1
"""Connections that a server accepts in a turn of its loop: each takes a fraction of a millisecond (SEC-002)."""


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


async def serve_on(
    sock: socket.socket, protocol: Callable[[], asyncio.BaseProtocol], **options: Any
) -> asyncio.base_events.Server:
    """Serve connections of this socket. asyncio accepts as many at once as its backlog is, and a crowd that connects
    again and again would hold the loop: so its backlog is short, and the socket's own is long."""
    server = await asyncio.get_running_loop().create_server(protocol, sock=sock, backlog=ACCEPTS_PER_TURN, **options)
    sock.listen(BACKLOG)
    return server
