"""TLS of the HTTP and gRPC servers (SEC-001): which settings are safe."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from holdfast.api.loopback import is_loopback
from holdfast.core.base.errors import Refused


class HasTlsSettings(Protocol):
    """The settings of a listening address that decide about TLS."""

    @property
    def host(self) -> str: ...
    @property
    def certificate(self) -> Path | None: ...
    @property
    def key(self) -> Path | None: ...
    @property
    def client_ca(self) -> Path | None: ...
    @property
    def allow_plain(self) -> bool: ...


def tls_faults(settings: HasTlsSettings) -> Iterator[Refused]:
    """SEC-001: tokens and results do not cross a network in plain text; TLS is configured completely or not at all."""
    if (settings.certificate is None) != (settings.key is None):
        missing = "key" if settings.key is None else "certificate"
        yield Refused("SEC-001", f"{missing}: missing", "a certificate and its key are set together")
    elif settings.client_ca is not None and settings.certificate is None:
        yield Refused("SEC-001", "client_ca: set without a certificate", "client certificates need TLS")
    if settings.certificate is None and not is_loopback(settings.host) and not settings.allow_plain:
        yield Refused(
            "SEC-001",
            f"host: {settings.host} is reachable from other machines and there is no TLS",
            "set certificate and key, or listen on 127.0.0.1; allow_plain = true is for a proxy that adds TLS",
        )
