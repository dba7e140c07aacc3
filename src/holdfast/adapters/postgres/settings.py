"""The settings of a PostgreSQL store, and the DSN as a secret that is never shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

SCHEMA: Final = "holdfast"
SCHEMA_PATTERN: Final = "^(?!pg_)[a-z_][a-z0-9_]{0,39}$"
CONNECT_MS: Final = 10_000
COMMAND_MS: Final = 60_000
_Ms = Annotated[int, msgspec.Meta(ge=1, le=3_600_000)]


class Secret:
    """A DSN that no message, log or traceback shows (SEC-001)."""

    def __init__(self, dsn: str) -> None:
        self.reveal: Callable[[], str] = lambda: dsn

    def __repr__(self) -> str:
        return "Secret(…)"

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        """A child process gets it through the pipe."""
        return Secret, (self.reveal(),)

    def redact(self, text: str) -> str:
        """The text without the DSN and its password, plain or percent-encoded."""
        dsn = self.reveal()
        try:
            password = urlsplit(dsn).password or ""
        except ValueError:
            password = ""
        for part in (dsn, password, unquote(password)):
            text = text.replace(part, "…") if part else text
        return text


class PostgresSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The server of the store `postgres`."""

    dsn: Secret | None = None
    schema: str = SCHEMA
    allow_unsafe: bool = False
    connect_timeout_ms: int = CONNECT_MS
    command_timeout_ms: int = COMMAND_MS


LEAVES: Final[Mapping[str, Any]] = {
    "dsn": Annotated[str, msgspec.Meta(pattern="^postgres(ql)?://")],
    "dsn_file": Annotated[str, msgspec.Meta(min_length=1)],
    "schema": Annotated[str, msgspec.Meta(pattern=SCHEMA_PATTERN)],
    "allow_unsafe": bool,
    "connect_timeout_ms": _Ms,
    "command_timeout_ms": _Ms,
}
"""The settings by name; the DSN may be in a file of its own."""
