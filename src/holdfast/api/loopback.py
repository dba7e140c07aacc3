"""Which addresses never leave the machine: on all others the servers require TLS (SEC-001)."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether `host` never leaves the machine; a name other than localhost may resolve to anything."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
