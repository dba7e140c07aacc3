"""Whether a server may be trusted with the truth: its version, its role in a cluster, its dangerous settings."""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.adapters.postgres.connect import Connection, Database, hang_up
from holdfast.core.refusal import Unavailable

VERSION_MIN: Final = 14
_DANGEROUS: Final = {
    "fsync": "a crash of the server's machine can lose or tear what was confirmed",
    "full_page_writes": "a crash of the server's machine can leave torn pages",
    "synchronous_commit": "a crash of the server loses the newest confirmed batches",
}
"""Settings that break ENG-002 when they are off, and how."""


class Danger(NamedTuple):
    """A setting with which a confirmed batch can be lost."""

    setting: str
    value: str
    why: str


async def dangers(connection: Connection) -> list[Danger]:
    """What of this session's settings breaks the promise of ENG-002; empty on an untuned server."""
    rows = await connection.fetch(
        "SELECT name, current_setting(name) FROM unnest($1::text[]) AS asked (name)", list(_DANGEROUS)
    )
    return [Danger(name, value, _DANGEROUS[name]) for name, value in rows if value == "off"]


async def check_server(connection: Connection, *, allow_unsafe: bool) -> None:
    """Unavailable unless the server can take a journal and keep it."""
    version, is_standby, is_read_only = await connection.fetchrow(
        "SELECT current_setting('server_version_num')::int / 10000, pg_is_in_recovery(),"
        " current_setting('transaction_read_only') = 'on'"
    )
    if version < VERSION_MIN:
        raise Unavailable("ENG-002", f"PostgreSQL {version} is too old", f"use version {VERSION_MIN} or newer")
    if is_standby:
        raise Unavailable("ENG-002", "this PostgreSQL server is a standby", "name the primary in the DSN")
    if is_read_only:
        raise Unavailable(
            "ENG-002", "this PostgreSQL session is read-only", "unset default_transaction_read_only for the role"
        )
    if not allow_unsafe and (found := await dangers(connection)):
        raise Unavailable(
            "ENG-002",
            "; ".join(f"PostgreSQL has {each.setting} = {each.value}: {each.why}" for each in found),
            "switch it on, or say postgres.allow_unsafe = true where losing confirmed work is acceptable",
        )


async def examined(dsn: str, schema: str) -> tuple[str, list[Danger]]:
    """The server's version and its dangers, for who only looks."""
    database = Database(dsn, schema)
    connection = await database.connect("doctor")
    try:
        with database.named():
            return await connection.fetchval("SHOW server_version"), await dangers(connection)
    finally:
        await hang_up(connection)
