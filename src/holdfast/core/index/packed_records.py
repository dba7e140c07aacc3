"""Records by key, of which some are kept as bytes: they become records when they are read for a change."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, MutableMapping, Sequence, ValuesView
from types import SimpleNamespace
from typing import Any, Final, Protocol, TypeVar, cast

K = TypeVar("K")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Packed(Protocol[K, R_co]):
    """The records that are kept as bytes."""

    @property
    def raw(self) -> Mapping[K, bytes]: ...
    def read(self, key: K) -> R_co:
        """A new record; the packed one stays."""
        ...

    def fields_of(self, key: K) -> tuple[object, ...]:
        """The fields of the record, without trailing ones that hold their default (CAN-005)."""
        ...

    def take(self, key: K) -> R_co:
        """The record, which is packed no more."""
        ...


NOTHING_PACKED: Final = cast("Packed[Any, Any]", SimpleNamespace(raw={}))


class PackedRecords(MutableMapping[K, R]):
    """`[]` and `get` give the record itself. What only looks uses `peek`, `values`, `items`: copies of packed ones."""

    __slots__ = ("packed", "records")

    def __init__(self) -> None:
        self.records: dict[K, R] = {}
        self.packed: Packed[K, R] = NOTHING_PACKED

    def __getitem__(self, key: K) -> R:
        try:
            return self.records[key]
        except KeyError:
            return self._unpack(key)

    def _unpack(self, key: K) -> R:
        if key not in self.packed.raw:
            raise KeyError(key)
        record = self.records[key] = self.packed.take(key)
        return record

    def __setitem__(self, key: K, record: R) -> None:
        self.records[key] = record

    def __delitem__(self, key: K) -> None:
        if key not in self.records:
            self[key]  # a packed one first becomes a record
        del self.records[key]

    def __contains__(self, key: object) -> bool:
        return key in self.records or key in self.packed.raw

    def __len__(self) -> int:
        return len(self.records) + len(self.packed.raw)

    def __iter__(self) -> Iterator[K]:
        yield from self.packed.raw
        yield from self.records

    def all_of(self, keys: Sequence[K]) -> list[R]:
        """The records of a run, each to be changed."""
        records = self.records
        try:
            return [records[key] for key in keys]
        except KeyError:
            return [self[key] for key in keys]

    def peek(self, key: K) -> R | None:
        """The record to look at; None where there is none."""
        return self.packed.read(key) if key in self.packed.raw else self.records.get(key)

    def fields_of(self, key: K) -> R | tuple[object, ...]:
        """The record; of a packed one its fields."""
        return self.packed.fields_of(key) if key in self.packed.raw else self.records[key]

    def values(self) -> ValuesView[R]:
        return _Values(self)

    def items(self) -> ItemsView[K, R]:
        return _Items(self)


class _Values(ValuesView[R]):
    _mapping: PackedRecords[object, R]

    def __iter__(self) -> Iterator[R]:
        packed = self._mapping.packed
        yield from map(packed.read, packed.raw)
        yield from self._mapping.records.values()


class _Items(ItemsView[K, R]):
    _mapping: PackedRecords[K, R]

    def __iter__(self) -> Iterator[tuple[K, R]]:
        return zip(self._mapping, self._mapping.values(), strict=True)
