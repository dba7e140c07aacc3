"""TLS of the HTTP and gRPC servers (SEC-001): which settings are safe, and files that may be replaced while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import structlog

from holdfast.api.loopback import is_loopback
from holdfast.core.base.errors import Refused, Unavailable

T = TypeVar("T")
_log = structlog.get_logger()


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


class TlsReloader(Generic[T]):
    """The newest material that could be loaded. Where files are only half replaced, the last good material is used."""

    def __init__(self, load: Callable[[], T]) -> None:
        """`load` returns the same object until a file changes; it raises Unavailable where the files cannot be used."""
        self._load, self.current, self._last_fault = load, load(), ""

    def reload(self) -> T:
        """Called at every handshake. The same fault is logged once."""
        try:
            self.current, self._last_fault = self._load(), ""
        except Unavailable as fault:
            if fault.message != self._last_fault:
                self._last_fault = fault.message
                _log.warning("tls_reload_failed", reason=fault.message, hint=fault.hint)
        return self.current
