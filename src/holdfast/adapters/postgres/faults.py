"""What PostgreSQL, its driver or the network may throw, as the three ways in which Holdfast says no."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import asyncpg

from holdfast.adapters.postgres.settings import Secret
from holdfast.core.refusal import Corrupt, Unavailable

HINTS: Final = {
    "25006": "this server is read-only: name the primary in the DSN",
    "28000": "check user, password and pg_hba.conf",
    "28P01": "check the user and the password in the DSN",
    "3D000": "create the database first",
    "42501": "the role needs CREATE on the database, or a schema of its own: see docs/operate.md",
    "42704": "PostgreSQL 14 or newer is needed, and no pooler between",
    "53100": "the server's disk is full",
    "53300": "raise max_connections, or end other clients",
    "54000": "if the NOTIFY queue is full: end the session that listens inside a long transaction",
    "57P01": "the server was stopped or the connection ended by its operator",
    "57P03": "the server is starting or stopping: try again",
}
"""What a human can do about an SQLSTATE."""
DAMAGE: Final = {
    "3F000": "the schema is gone: restore a backup",
    "42P01": "a table is gone: restore a backup",
    "42703": "a table was changed by hand: restore a backup",
    "XX001": "the server found damaged data: restore a backup",
    "XX002": "the server found a damaged index: REINDEX it, or restore a backup",
}
"""What no repetition will mend."""
_LOST: Final = "check that the server is up and can be reached"
_FROM_THE_WORLD: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,  # also TimeoutError, ssl.SSLError, gaierror
    EOFError,
)


@contextmanager
def named(secret: Secret) -> Iterator[None]:
    """Run what speaks to the server; whatever goes wrong gets a rule, a sentence and a hint (ENG-002)."""
    try:
        yield
    except _FROM_THE_WORLD as fault:
        raise fault_of(fault, secret) from None  # the driver's own error may show what we hide


def fault_of(fault: BaseException, secret: Secret) -> Unavailable | Corrupt:
    """ENG-002: an outcome that is not known is Unavailable; damage that stays is Corrupt."""
    state = getattr(fault, "sqlstate", None)
    says = secret.hidden_in(f"PostgreSQL: {_sentence_of(fault)}")
    if state in DAMAGE:
        return Corrupt("ENG-003", says, DAMAGE[state])
    return Unavailable("ENG-002", says, HINTS.get(state or "", _LOST))


def _sentence_of(fault: BaseException) -> str:
    if isinstance(fault, asyncpg.ClientConfigurationError | ValueError):
        return "the DSN cannot be read"  # the driver would quote it
    if isinstance(fault, TimeoutError) and not str(fault):
        return "no answer in time"
    text = str(getattr(fault, "message", None) or fault) or type(fault).__name__
    return text.splitlines()[0]
