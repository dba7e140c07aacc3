"""TLS of the HTTP server (SEC-001). Its files may be replaced while it runs, as those of the gRPC server."""

from __future__ import annotations

import ssl
from pathlib import Path

from holdfast.api.http.settings import HttpSettings
from holdfast.api.tls_reloader import TlsReloader
from holdfast.core.base.errors import Unavailable


def tls_context(settings: HttpSettings) -> ssl.SSLContext | None:
    """The context of the listening socket, which uses the newest good files at each handshake; None without TLS."""
    if settings.certificate is None or settings.key is None:
        return None
    files = _ContextFiles(settings.certificate, settings.key, settings.client_ca)
    reloader = TlsReloader(files.load)
    context = files.make_context()

    def on_handshake(connection: ssl.SSLObject, _: str, __: ssl.SSLContext) -> None:
        """Called also for clients that send no server name."""
        connection.context = reloader.reload()

    context.sni_callback = on_handshake
    return context


class _ContextFiles:
    """The files of the server's TLS context."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        self._files, self._client_ca = (certificate, key), client_ca
        self._loaded: tuple[tuple[object, ...], ssl.SSLContext] | None = None

    def load(self) -> ssl.SSLContext:
        """The same object as long as no file has changed; Unavailable where they cannot be used."""
        stamps = self._stamps()
        if self._loaded is None or self._loaded[0] != stamps:
            self._loaded = (stamps, self.make_context())
        return self._loaded[1]

    def _stamps(self) -> tuple[object, ...]:
        paths = (*self._files, self._client_ca) if self._client_ca is not None else self._files
        return tuple(map(_stamp, paths))

    def make_context(self) -> ssl.SSLContext:
        """TLS 1.2 or newer with the node's certificate; with a client CA, only clients with a certificate of it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(*self._files)
            if self._client_ca is not None:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(self._client_ca)
        except (OSError, ssl.SSLError) as fault:
            raise Unavailable("SEC-001", f"TLS: {fault}", "check certificate, key and client_ca of http") from fault
        return context


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
