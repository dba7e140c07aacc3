"""Which addresses count as one client: a whole IPv4 address, and of IPv6 the network of a household (SEC-001)."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network
_HOST_BITS_V6 = 64
_REMEMBERED = 1_024
"""Addresses: to parse one takes a third of the time of accepting its connection."""


@lru_cache(_REMEMBERED)
def client_of(address: str) -> str:
    """The client behind an address: IPv4 /32, IPv6 /64; an IPv4 address inside of IPv6 is the IPv4 address."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address  # a Unix socket, or a name
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return f"{IPv6Address(int(parsed) >> _HOST_BITS_V6 << _HOST_BITS_V6)}/64"


def parse_networks(text: str) -> tuple[Network, ...]:
    """Networks and addresses, separated by blanks; ValueError names the first that is none."""
    return tuple(ip_network(each) for each in text.split())


def is_in(address: str, networks: tuple[Network, ...]) -> bool:
    if not networks:
        return False
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return any(parsed in network for network in networks)


def forwarded_address(peer: str, forwarded_for: str, proxies: tuple[Network, ...]) -> str:
    """The client that a trusted proxy speaks for: the last address of `X-Forwarded-For` that is not a proxy's.

    What stands before it was sent by the client and may say anything. Without a trusted proxy the peer is the client.
    """
    if not proxies or not is_in(peer, proxies):
        return peer
    for address in reversed([each.strip() for each in forwarded_for.split(",")]):
        if address and not is_in(address, proxies):
            return address
    return peer
