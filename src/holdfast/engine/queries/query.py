"""A named query: a struct that says what is asked. `table` has the one handler that answers each of them."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")
R = TypeVar("R", bound=msgspec.Struct)


class Query(msgspec.Struct, Generic[T], frozen=True):
    """Base of all queries; `T` is the type of the answer.

    A query and its answer are plain values: they hold no reference to live state, so that whoever asks can be another
    process.
    """


def copy_record(record: R | None) -> R | None:
    """The record as it is at this moment: the one in memory goes on changing."""
    return msgspec.structs.replace(record) if record is not None else None
