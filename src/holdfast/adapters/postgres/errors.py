"""Translates errors of PostgreSQL, its driver and the network into Unavailable or Corrupt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import asyncpg

from holdfast.adapters.postgres.settings import Secret
from holdfast.core.base.errors import Corrupt, Unavailable

HINTS: Final = {
    "25006": "this server is read-only: put the primary into the DSN",
    "28000": "check user, password and pg_hba.conf",
    "28P01": "check the user and the password in the DSN",
    "3D000": "create the database first",
    "42501": "the role needs CREATE on the database, or a schema of its own: see docs/how-to/operator.md",
    "42704": "use PostgreSQL 14 or newer, without a pooler in between",
    "53100": "the server's disk is full",
    "53300": "raise max_connections, or end other clients",
    "54000": "if the NOTIFY queue is full: end the session that listens inside a long transaction",
    "57P01": "the server was stopped, or its operator ended the connection",
    "57P03": "the server is starting or stopping: try again",
}
"""What an operator can do about an SQLSTATE."""
DAMAGE: Final = {
    "3F000": "the schema is gone: restore a backup",
    "42P01": "a table is gone: restore a backup",
    "42703": "a table was changed by hand: restore a backup",
    "XX001": "the server found damaged data: restore a backup",
    "XX002": "the server found a damaged index: REINDEX it, or restore a backup",
}
"""SQLSTATEs that mean damage: a retry does not help."""
_CONNECTION_HINT: Final = "check that the server is up and can be reached"
_DRIVER_ERRORS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,  # also TimeoutError, ssl.SSLError, gaierror
    EOFError,
)


@contextmanager
def translate_errors(secret: Secret) -> Iterator[None]:
    """Errors inside this context are raised with a rule, a message and a hint (ENG-002)."""
    try:
        yield
    except _DRIVER_ERRORS as fault:
        raise translate_error(fault, secret) from None  # the driver's own error may show the DSN


def translate_error(fault: BaseException, secret: Secret) -> Unavailable | Corrupt:
    """ENG-002: an unknown outcome is Unavailable; lasting damage is Corrupt."""
    state = getattr(fault, "sqlstate", None)
    message = secret.redact(f"PostgreSQL: {_message_of(fault)}")
    if state in DAMAGE:
        return Corrupt("ENG-003", message, DAMAGE[state])
    return Unavailable("ENG-002", message, HINTS.get(state or "", _CONNECTION_HINT))


def _message_of(fault: BaseException) -> str:
    if isinstance(fault, asyncpg.ClientConfigurationError | ValueError):
        return "the DSN cannot be read"  # the driver would quote it
    if isinstance(fault, TimeoutError) and not str(fault):
        return "no answer in time"
    text = str(getattr(fault, "message", None) or fault) or type(fault).__name__
    return text.splitlines()[0]
