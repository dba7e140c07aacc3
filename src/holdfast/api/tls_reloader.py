"""TLS files that may be replaced while the servers run (SEC-001)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from holdfast.core.base.errors import Unavailable

T = TypeVar("T")
_log = structlog.get_logger()


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
