"""Brings a schema up to date: forward only, one process at a time, each step in a transaction with its number."""

from __future__ import annotations

from holdfast.adapters.postgres.connect import Connection, Database
from holdfast.adapters.sql.named_queries import FORMAT, OLD_VERSIONS, check_format, check_version, migrations
from holdfast.core.base.errors import Unavailable


async def migrate(connection: Connection, database: Database, name: str, steps: tuple[str, ...] | None = None) -> None:
    """Apply the missing migrations. One that is interrupted leaves nothing behind and starts again."""
    steps = migrations(f"postgres_{name}") if steps is None else steps
    while await _version(connection, database, name, len(steps)) < len(steps):
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", database.lock_key("migrate"))
            await _make_schema(connection, database)
            have = await _version(connection, database, name, len(steps))
            if have < len(steps):
                await connection.execute(steps[have])
                await connection.execute(
                    "INSERT INTO schema_format VALUES ($1, $2, $3) ON CONFLICT (name) DO UPDATE SET number = $3",
                    name,
                    FORMAT,
                    have + 1,
                )


async def check_schema(connection: Connection, database: Database, name: str) -> None:
    """For a reader, which changes nothing: Unavailable if nothing is stored yet, Corrupt if it is newer than us."""
    if await _version(connection, database, name, len(migrations(f"postgres_{name}"))) == 0:
        raise Unavailable("ENG-001", f"no {name} in schema {database.schema}", "start a node there first")


async def _version(connection: Connection, database: Database, name: str, known: int) -> int:
    where = f"schema {database.schema}"
    if await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", OLD_VERSIONS):
        check_format(where, name, None)
    if await connection.fetchval("SELECT to_regclass('schema_format') IS NULL"):
        return 0
    row = await connection.fetchrow("SELECT format, number FROM schema_format WHERE name = $1", name)
    if row is None:
        return 0
    check_format(where, name, row["format"])
    check_version(where, name, row["number"], known)
    return int(row["number"])


async def _make_schema(connection: Connection, database: Database) -> None:
    """Create only what is missing: a role without CREATE on the database may have been given its schema."""
    if not await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", database.schema):
        await connection.execute(f'CREATE SCHEMA "{database.schema}"')
    if await connection.fetchval("SELECT to_regclass('schema_format') IS NULL"):
        await connection.execute(
            "CREATE TABLE schema_format (name text PRIMARY KEY, format bigint NOT NULL, number bigint NOT NULL)"
        )
