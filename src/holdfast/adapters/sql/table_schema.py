"""The schema of the row tables, the same on every store: keys, columns, filters, and how a row is replaced."""

from __future__ import annotations

from typing import Final

from holdfast.core.tables import TABLES

COLUMNS: Final = {name: table.columns for name, table in TABLES.items()}
KEYS: Final = {table: columns[0] for table, columns in COLUMNS.items()}
"""Each table with its key column; also what `drop` empties."""

FILTERS: Final = {
    "account": {"owner"},
    "reservation": {"owner", "status", "event"},
    "key": {"role", "account"},
    "block": {"height", "status"},
    "job": {"caller", "state", "kind", "height>=", "parent"},
    "spec": set[str](),
    "provider": {"status"},
    "lease": {"job_id", "provider_id", "status"},
    "result": {"task_id", "status", "result_digest"},
    "tombstone": {"task_id"},
    "consumption": set[str](),
    "verdict": {"task_id", "provider_id"},
    "leaf": {"height"},
    "watermark": {"channel"},
    "evidence": {"channel", "session", "last_sequence>="},
    "dead_letter": {"channel", "status"},
    "provider_quota": set[str](),
    "failed_job": {"caller", "kind"},
}
"""What a page may be filtered by: a column that equals a value, or with `>=` is at least that value."""

IMMUTABLE: Final = {
    "reservation": {"id", "owner", "amount", "memo_size", "memo_digest"},
    "key": {"event", "role", "account", "label", "made_ms"},
    "block": set(COLUMNS["block"]) - {"status"},
    "job": {"id", "kind", "caller", "tier", "height", "tx_hash", "nonce", "request_hash", "size_bytes", "enqueue_ms"}
    | {"parent", "parent_event"},
    "provider": {"event", "public", "registered_ms"},
    "lease": {"id", "job_id", "provider_id", "attempt", "t_start_ms", "price", "duration_ms"},
    "result": {"task_id", "proof_nullifier", "result_digest", "result_size"},
    "consumption": {"task_id", "caller", "kind"},
    "watermark": {"provider_id", "channel", "session"},
    "dead_letter": {"provider_id", "channel", "session", "sequence", "name", "reason", "size", "digest", "at_ms"},
}
"""Columns that never change once the row exists: replacing a row does not write them, nor their indexes."""


def where_clause(filters: tuple[str, ...], placeholder: str, first: int = 1) -> str:
    """The conditions of a page; placeholders `$` are numbered from `first` on."""
    return "".join(
        f" AND {name if name.endswith('>=') else name + ' ='} {placeholder}{number if placeholder == '$' else ''}"
        for number, name in enumerate(filters, start=first)
    )


def upsert_clause(table: str) -> str:
    """What to do if the row exists: overwrite the columns that may change."""
    key, immutable = KEYS[table], IMMUTABLE.get(table, set())
    changing = [name for name in COLUMNS[table] if name != key and name not in immutable]
    return f"ON CONFLICT ({key}) DO UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in changing)
