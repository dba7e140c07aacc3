"""Limits of one JSON-RPC message (SEC-001). They stand alone, so that reading the settings loads no server."""

from __future__ import annotations

from typing import Final

BATCH_MAX: Final = 1_000
"""Requests in one batch. A server may be set to fewer, never to more."""
VALUES_MAX: Final = 1_000_000
"""Values and keys in one message. A server may be set to fewer, never to more."""
DEPTH_MAX: Final = 512
"""How deep a message may be nested. A server may be set to less, never to more."""
