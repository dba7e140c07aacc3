"""The tables that hold rows, as every store has them: their keys, columns, filters, and how a row is replaced."""

from __future__ import annotations

from typing import Final

from holdfast.core.chain.blocks import Block
from holdfast.core.state import TABLES

COLUMNS: Final = {table: record.__struct_fields__ for table, record in TABLES.items()}
KEYS: Final = {table: columns[0] for table, columns in COLUMNS.items()}
"""Each table with its key column; also what `drop` empties."""

FILTERS: Final = {
    "account": {"owner"},
    "hold": {"owner", "status", "event"},
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
    "mark": {"channel"},
    "evidence": {"channel", "session", "last_sequence>="},
    "dead_letter": {"channel", "status"},
    "provider_quota": set[str](),
    "failed_job": {"caller", "kind"},
}
"""What a page may be filtered by: columns that are equal, or where it says so, at least."""

FIXED: Final = {
    "hold": {"id", "owner", "amount", "memo_size", "memo_digest"},
    "key": {"event", "role", "account", "label", "made_ms"},
    "block": set(Block.__struct_fields__) - {"status"},
    "job": {"id", "kind", "caller", "tier", "height", "tx_hash", "nonce", "request_hash", "size_bytes", "enqueue_ms"}
    | {"parent", "parent_event"},
    "provider": {"event", "public", "registered_ms"},
    "lease": {"id", "job_id", "provider_id", "attempt", "t_start_ms", "price", "t_ms"},
    "result": {"task_id", "proof_nullifier", "result_digest", "result_size"},
    "consumption": {"task_id", "caller", "kind"},
    "mark": {"provider_id", "channel", "session"},
    "dead_letter": {"provider_id", "channel", "session", "sequence", "name", "reason", "size", "digest", "at_ms"},
}
"""Columns that never change once the row is there: replacing a row leaves them, and their indexes, alone."""


def where(filters: tuple[str, ...], place: str, first: int = 1) -> str:
    """The conditions of a page, with their places numbered from `first` on where the store numbers them."""
    return "".join(
        f" AND {name if name.endswith('>=') else name + ' ='} {place}{number if place == '$' else ''}"
        for number, name in enumerate(filters, start=first)
    )


def replacing(table: str) -> str:
    """What to do with a row that is there already: put the newer values in."""
    key, fixed = KEYS[table], FIXED.get(table, set())
    changing = [name for name in COLUMNS[table] if name != key and name not in fixed]
    return f"ON CONFLICT ({key}) DO UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in changing)
