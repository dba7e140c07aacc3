"""Batches and journal heads as rows: the order of their columns is written here once, for every store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.base.event import Batch, JournalHead


def batch_values(batch: Batch) -> tuple[object, ...]:
    """The parameters of the statement `append`."""
    return (
        batch.number,
        batch.term,
        batch.first,
        batch.last,
        batch.time_ms,
        batch.parent,
        batch.hash,
        batch.body,
    )


def batch_from_row(row: Sequence[Any]) -> Batch:
    """A batch from a row of the statement `read`."""
    number, term, first, last, time_ms, parent, body, hash_ = row
    return Batch(
        number=number,
        term=term,
        first=first,
        last=last,
        time_ms=time_ms,
        parent=parent,
        body=body,
        hash=hash_,
    )


def head_values(head: JournalHead) -> tuple[object, ...]:
    """The parameters of the statement `put_checkpoint`."""
    return (head.number, head.term, head.last, head.time_ms, head.hash)


def head_from_row(row: Sequence[Any] | None) -> JournalHead:
    """A head from a row of the statements `head` and `checkpoint`; the empty head if there is no row."""
    if row is None:
        return JournalHead()
    number, term, last, time_ms, hash_ = row
    return JournalHead(number=number, term=term, last=last, time_ms=time_ms, hash=hash_)
