"""Checks that a server can hold a journal: its version, its role in a cluster, its unsafe settings."""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.adapters.postgres.connect import Connection, Database, close_connection
from holdfast.core.base.errors import Unavailable

VERSION_MIN: Final = 14
_UNSAFE_WHEN_OFF: Final = {
    "fsync": "a crash of the server's machine can lose or tear what was confirmed",
    "full_page_writes": "a crash of the server's machine can leave torn pages",
    "synchronous_commit": "a crash of the server loses the newest confirmed batches",
}
"""Settings that break ENG-002 if they are off, and what then happens."""


class UnsafeSetting(NamedTuple):
    """A setting with which a confirmed batch can be lost."""

    setting: str
    value: str
    reason: str


async def unsafe_settings(connection: Connection) -> list[UnsafeSetting]:
    """The settings of this session that break ENG-002; none on a server with default settings."""
    rows = await connection.fetch(
        "SELECT name, current_setting(name) FROM unnest($1::text[]) AS setting (name)", list(_UNSAFE_WHEN_OFF)
    )
    return [UnsafeSetting(name, value, _UNSAFE_WHEN_OFF[name]) for name, value in rows if value == "off"]


async def check_server(connection: Connection, *, allow_unsafe: bool) -> None:
    """Unavailable unless the server can store a journal durably."""
    version, is_standby, is_read_only = await connection.fetchrow(
        "SELECT current_setting('server_version_num')::int / 10000, pg_is_in_recovery(),"
        " current_setting('transaction_read_only') = 'on'"
    )
    if version < VERSION_MIN:
        raise Unavailable("ENG-002", f"PostgreSQL {version} is too old", f"use version {VERSION_MIN} or newer")
    if is_standby:
        raise Unavailable("ENG-002", "this PostgreSQL server is a standby", "put the primary into the DSN")
    if is_read_only:
        raise Unavailable(
            "ENG-002", "this PostgreSQL session is read-only", "unset default_transaction_read_only for the role"
        )
    if not allow_unsafe and (unsafe := await unsafe_settings(connection)):
        raise Unavailable(
            "ENG-002",
            "; ".join(f"PostgreSQL has {each.setting} = {each.value}: {each.reason}" for each in unsafe),
            "switch it on, or set postgres.allow_unsafe = true if losing confirmed work is acceptable",
        )


async def inspect_server(dsn: str, schema: str) -> tuple[str, list[UnsafeSetting]]:
    """The server's version and its unsafe settings, without changing anything."""
    database = Database(dsn, schema)
    connection = await database.connect("doctor")
    try:
        with database.translate_errors():
            return await connection.fetchval("SHOW server_version"), await unsafe_settings(connection)
    finally:
        await close_connection(connection)
