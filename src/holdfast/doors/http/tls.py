"""TLS at the HTTP door (SEC-001): files that may be replaced while it is open, as they are at the gRPC door."""

from __future__ import annotations

import ssl
from pathlib import Path

import structlog

from holdfast.core.refusal import Unavailable
from holdfast.doors.http.settings import HttpSettings

_log = structlog.get_logger()


def tls_of(settings: HttpSettings) -> ssl.SSLContext | None:
    """What the door shows and asks for; None where it speaks plainly."""
    if settings.certificate is None or settings.key is None:
        return None
    return _Renewal(settings, settings.certificate, settings.key).front


class _Renewal:
    """Looks at the files at every handshake. Where they are only half replaced, the last good ones go on."""

    def __init__(self, settings: HttpSettings, certificate: Path, key: Path) -> None:
        self._files, self._client_ca = (certificate, key), settings.client_ca
        self._seen, self._blamed = self._look(), ""
        self._inside = self._context()
        self.front = self._context()
        self.front.sni_callback = self._greet

    def _greet(self, connection: ssl.SSLObject, _: str, __: ssl.SSLContext) -> None:
        """Called also for those who do not say whom they want; who is greeted gets what is there now."""
        if (seen := self._look()) != self._seen:
            try:
                self._inside, self._seen, self._blamed = self._context(), seen, ""
            except Unavailable as fault:
                if fault.says != self._blamed:
                    self._blamed = fault.says
                    _log.warning("the TLS files cannot be used", because=fault.says)
        connection.context = self._inside

    def _look(self) -> tuple[object, ...]:
        paths = (*self._files, self._client_ca) if self._client_ca is not None else self._files
        return tuple(map(_stamp, paths))

    def _context(self) -> ssl.SSLContext:
        """TLS 1.2 or newer with the node's certificate; with a client CA, nobody without a certificate of it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(*self._files)
            if self._client_ca is not None:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(self._client_ca)
        except (OSError, ssl.SSLError) as fault:
            raise Unavailable("SEC-001", f"TLS: {fault}", "look at certificate, key and client_ca of http") from fault
        return context


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
