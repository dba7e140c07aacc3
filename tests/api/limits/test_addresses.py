"""Which addresses are one client, and whom a trusted proxy speaks for (SEC-001)."""

from __future__ import annotations

import pytest

from holdfast.api.limits.addresses import client_of, forwarded_address, parse_networks

pytestmark = pytest.mark.rule("SEC-001")
PROXIES = parse_networks("10.0.0.0/8 2001:db8:1::/48")


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1:2:3", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("unix:", "unix:"),
    ],
)
def test_a_client_is_an_ipv4_address_or_an_ipv6_network_of_64_bits(address: str, client: str) -> None:
    assert client_of(address) == client


@pytest.mark.parametrize(
    ("peer", "told", "client"),
    [
        ("192.0.2.7", "198.51.100.1", "192.0.2.7"),
        ("10.1.2.3", "198.51.100.1", "198.51.100.1"),
        ("10.1.2.3", "6.6.6.6, 198.51.100.1, 10.9.9.9", "198.51.100.1"),
        ("10.1.2.3", "", "10.1.2.3"),
        ("10.1.2.3", "10.9.9.9", "10.1.2.3"),
        ("2001:db8:1::5", "2001:db8:9::1", "2001:db8:9::1"),
    ],
    ids=["not a proxy", "one", "what the client made up", "none", "proxies alone", "ipv6"],
)
def test_a_trusted_proxy_is_believed_and_nobody_else(peer: str, told: str, client: str) -> None:
    assert forwarded_address(peer, told, PROXIES) == client
    assert forwarded_address(peer, told, ()) == peer
