"""The schema of the row tables, the same on every store: keys, columns, filters, and how a row is replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import Kind
from holdfast.core.job.model import JobState
from holdfast.core.tables import TABLES
from holdfast.ports import Row, is_row_deleted

COLUMNS: Final = {name: (*table.columns, *table.packed) for name, table in TABLES.items()}
SELECT: Final = {name: f"SELECT {', '.join(columns)} FROM {name}" for name, columns in COLUMNS.items()}  # noqa: S608
"""The columns by name: a column that is added later stands at the end of the table, not of the record."""
KEYS: Final = {table: columns[0] for table, columns in COLUMNS.items()}
"""Each table with its key column; also what `drop` empties."""

FILTERS: Final = {
    "account": {"owner"},
    "reservation": {"owner", "status", "event"},
    "key": {"role", "account"},
    "block": {"height", "status", "hash"},
    "job": {"caller", "state", "kind", "height>=", "parent", "event>="},
    "spec": set[str](),
    "provider": {"status"},
    "lease": {"job_id", "provider_id", "status"},
    "result": {"status", "result_digest", "caller"},
    "tombstone": set[str](),
    "consumption": set[str](),
    "verdict": {"task_id", "provider_id"},
    "leaf": {"height"},
    "watermark": {"channel"},
    "evidence": {"channel", "session", "last_sequence>="},
    "work_log": {"task_id"},
    "dead_letter": {"channel", "status"},
    "provider_quota": set[str](),
    "transfer": {"reference", "owner", "kind", "status"},
    "failed_job": {"caller", "kind"},
    "blob": {"height", "status", "versioned_hash"},
    "blob_part": {"blob", "task_id", "result_digest"},
}
"""What a page may be filtered by: a column that equals a value, or with `>=` is at least that value."""

INDEXED: Final[Mapping[str, Sequence[tuple[str, ...]]]] = {
    "job": (("caller", "state", "kind"), ("state", "kind")),
    "failed_job": (("caller",),),
    "reservation": (("owner",),),
}
"""Filters that clients choose (SEC-002): the columns of an index, before the key. A list is read from the first index
that begins with one of its filters, else from the last one."""

VALUES: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "job": {"state": tuple(JobState), "kind": tuple(Kind)},
}
"""Columns with few values. A list that is not filtered by one of them is merged from those of all its values, in order
and row by row: so two indexes serve every choice of filters, and each job is written into two of them."""

PERMANENT: Final = frozenset({"blob", "blob_part"})
"""Tables whose rows are for ever: there is no statement that deletes one (BLB-002)."""

IMMUTABLE: Final = {
    "reservation": {"id", "owner", "amount", "memo_size", "memo_digest"},
    "transfer": {"reference", "kind", "owner", "amount", "reason"},
    "key": {"event", "role", "account", "label", "made_ms"},
    "block": set(COLUMNS["block"]) - {"status"},
    "job": {"id", "kind", "caller", "tier", "height", "tx_hash", "nonce", "request_hash", "size_bytes", "enqueue_ms"}
    | {"parent", "parent_event", "is_public", "input_digest", "run_ms_max", "run_at_ms"}
    | {"spec_digest", "units", "proof", "quorum_n", "quorum_m"},
    "provider": {"event", "public", "registered_ms"},
    "lease": {"id", "job_id", "provider_id", "attempt", "t_start_ms", "price", "duration_ms"},
    "result": {"task_id", "proof_nullifier", "result_digest", "result_size", "caller", "is_public"},
    "consumption": {"task_id", "caller", "kind"},
    "watermark": {"provider_id", "channel", "session"},
    "dead_letter": {"provider_id", "channel", "session", "sequence", "name", "reason", "size", "digest", "at_ms"},
    "blob": {"height", "number", "versioned_hash", "commitment", "proof", "keccak"},
}
"""Columns that never change once the row exists: replacing a row does not write them, nor their indexes."""

BY_EVENT: Final = {table for table, key in KEYS.items() if key == "event"}
"""Tables whose key is an event: a row up to the checkpoint nearly always exists."""


def split_rows(table: str, rows: Sequence[Row], after: JournalHead | None) -> tuple[list[Row], list[Row], list[Row]]:
    """New rows, rows that may exist, and rows to delete; of two with one key the later counts.

    The key of most rows is the event that made them: after the checkpoint `after` there is no such row yet.
    """
    latest = {row[0]: row for row in rows}
    deleted = [row for row in latest.values() if is_row_deleted(row)] if min(map(len, rows), default=0) == 1 else []
    for row in deleted:
        del latest[row[0]]
    if after is None or table not in BY_EVENT:
        return [], list(latest.values()), deleted
    last = after.last
    known = [row for key, row in latest.items() if key <= last]  # type: ignore[operator]  # keys are events
    if not known:
        return list(latest.values()), [], deleted
    return [row for key, row in latest.items() if key > last], known, deleted  # type: ignore[operator]


def is_gapless(table: str, rows: Sequence[Row]) -> bool:
    """Whether these are leaves in order and without a gap: they can replace whatever is between the first and last."""
    if table != "leaf" or not rows:
        return False
    first = rows[0][0]
    assert isinstance(first, int)
    return [row[0] for row in rows] == list(range(first, first + len(rows)))


def page_statement(
    table: str, filters: tuple[str, ...], mark: str, *, is_newest_first: bool, are_parts_limited: bool = False
) -> str:
    """The rows of a page, in order. Parameters: 1 the key before it, 2 the limit, from 3 on the values of the filters;
    `mark` stands before their numbers.

    SQLite merges the parts row by row. PostgreSQL does so only where it expects that to be cheaper than sorting all of
    them, so there each part has a limit of its own.
    """
    key = KEYS[table]
    beyond, order = ("<", f"{key} DESC") if is_newest_first else (">", key)
    rows = f"{SELECT[table]} WHERE {key} {beyond} {mark}1{where_clause(filters, mark, 3)}"
    end = f" ORDER BY {order} LIMIT {mark}2"
    parts = [rows + more for more in _conditions_of_index(table, filters)]
    if are_parts_limited and len(parts) > 1:
        parts = [f"({part}{end})" for part in parts]
    return " UNION ALL ".join(parts) + end


def _conditions_of_index(table: str, filters: tuple[str, ...]) -> list[str]:
    """What each part of a list adds, so that all columns of its index have a value."""
    indexes = [index for index in INDEXED.get(table, ()) if set(index) & set(filters)]
    index = next((index for index in indexes if index[0] in filters), indexes[-1] if indexes else ())
    values = VALUES.get(table, {})
    missing = [column for column in index if column not in filters and column in values]
    return [
        "".join(f" AND {column} = '{value}'" for column, value in zip(missing, chosen, strict=True))
        for chosen in product(*(values[column] for column in missing))
    ]


def where_clause(filters: tuple[str, ...], mark: str, first: int) -> str:
    """The conditions of a page; their parameters are numbered from `first` on."""
    return "".join(
        f" AND {name if name.endswith('>=') else name + ' ='} {mark}{number}"
        for number, name in enumerate(filters, start=first)
    )


def delete_statement(table: str, condition: str) -> str:
    """Delete rows by their key; Corrupt where a journal says so of rows that are for ever (BLB-002)."""
    if table in PERMANENT:
        raise Corrupt("BLB-002", f"rows of {table} are never deleted")
    return f"DELETE FROM {table} WHERE {KEYS[table]} {condition}"  # noqa: S608 - our own names


def upsert_clause(table: str) -> str:
    """What to do if the row exists: overwrite the columns that may change."""
    assigned = ", ".join(
        f"{name} = {kept_if_null(table, name, f'excluded.{name}', f'{table}.{name}')}"
        for name in changing_columns(table)
    )
    return f"ON CONFLICT ({KEYS[table]}) DO UPDATE SET {assigned}"


def changing_columns(table: str) -> list[str]:
    """What replacing a row writes."""
    return [name for name in COLUMNS[table] if name != KEYS[table] and name not in IMMUTABLE.get(table, set())]


def kept_if_null(table: str, column: str, new: str, old: str) -> str:
    """The new value of a column; of a packed one the old value where the new one is null."""
    return f"coalesce({new}, {old})" if column in TABLES[table].packed else new


def insert_clause(table: str) -> str:
    return f"INSERT INTO {table} ({', '.join(COLUMNS[table])})"
