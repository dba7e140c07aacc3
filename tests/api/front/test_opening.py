"""The first bytes of a connection: HTTP/2 or TLS, and nothing else (SEC-002)."""

from __future__ import annotations

import pytest

from holdfast.api.front.opening import PREFACE, Opening, check_opening
from holdfast.api.front.peer_name import ForwardedPeer, read_peer, socket_name

pytestmark = pytest.mark.rule("SEC-002")
RECORD = b"\x16\x03\x01\x00\x20" + bytes(32)
"""A TLS record of a handshake."""


@pytest.mark.parametrize(("opening", "is_tls"), [(PREFACE, False), (RECORD, True)])
def test_only_a_whole_opening_is_complete(opening: bytes, is_tls: bool) -> None:
    for cut in range(len(opening)):
        assert check_opening(opening[:cut], is_tls=is_tls) is Opening.INCOMPLETE, cut
    assert check_opening(opening, is_tls=is_tls) is Opening.COMPLETE
    assert check_opening(opening + b"more", is_tls=is_tls) is Opening.COMPLETE


@pytest.mark.parametrize(
    ("head", "is_tls"),
    [
        (b"GET / HTTP/1.1\r\n", False),
        (b"PRI * HTTP/1", False),
        (RECORD, False),
        (PREFACE, True),
        (b"\x16\x02", True),
        (b"\x16\x03\x01\x00\x00", True),
        (b"\x16\x03\x01\x40\x01", True),
    ],
)
def test_another_protocol_is_foreign_at_the_first_byte_that_differs(head: bytes, is_tls: bool) -> None:
    assert check_opening(head, is_tls=is_tls) is Opening.FOREIGN


def test_the_largest_tls_record_is_waited_for() -> None:
    assert check_opening(b"\x16\x03\x01\x40\x00", is_tls=True) is Opening.INCOMPLETE


@pytest.mark.parametrize("address", ["192.0.2.7", "2001:db8::7", "fe80::1%eth0", ""])
def test_the_name_of_a_forwarded_connection_carries_its_client(address: str) -> None:
    peer = ForwardedPeer(4711, address)
    name = socket_name("ab12", peer)
    assert len(name) <= 108
    assert read_peer("unix-abstract:" + name[1:].decode()) == peer


@pytest.mark.parametrize(
    "peer",
    ["ipv4:192.0.2.7:4711", "unix:", "unix-abstract:other", "unix-abstract:holdfast-front/a/x/192.0.2.7", ""],
)
def test_other_peers_were_not_forwarded(peer: str) -> None:
    assert read_peer(peer) is None
