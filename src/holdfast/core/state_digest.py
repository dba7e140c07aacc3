"""The digest of the state (ENG-003): equal states have equal digests, on every machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha3_256
from operator import attrgetter
from typing import Any, Final

import msgspec

from holdfast.core.base.canonical import H
from holdfast.core.base.values import Digest
from holdfast.core.index.packed_records import PackedRecords
from holdfast.core.state import PARTS, State

STATE_TAG: Final = "holdfast.state.v1"
_pack = msgspec.msgpack.Encoder().encode
READ_PART: Final = {part.stored: attrgetter(part.path) for part in PARTS}
"""How each part of the state is read, by its stored name."""


def digest(state: State) -> Digest:
    """ENG-003: equal states have equal digests, whatever the order in which their entries were added.

    CAN-005: an empty part and trailing fields with their default add nothing, so that a journal from before a part or a
    field existed keeps its digest.
    """
    owner = state.owner
    owned = None if owner is None else (owner.term, owner.owner, owner.api_address)
    parts = [] if state.chain.is_at_genesis else [b"chain" + _digest_of({0: state.chain})]
    parts += [
        stored.encode() + _digest_of(entries if isinstance(entries, Mapping) else {0: entries})
        for stored, entries in ((part.stored, READ_PART[part.stored](state)) for part in PARTS)
        if entries
    ]
    return H(STATE_TAG, state.last_event, _pack(owned), *parts)


def _digest_of(entries: Mapping[Any, object]) -> bytes:
    """A packed entry stays packed."""
    hasher = sha3_256()
    read: Callable[[Any], object] = entries.fields_of if isinstance(entries, PackedRecords) else entries.__getitem__
    for key in sorted(entries):
        hasher.update(_pack((key, _without_trailing_defaults(read(key)))))
    return hasher.digest()


def _without_trailing_defaults(entry: object) -> object:
    """A record without the trailing fields that hold their default (CAN-005)."""
    if not isinstance(entry, msgspec.Struct):
        return entry
    values, defaults = msgspec.structs.astuple(entry), entry.__struct_defaults__
    keep, required = len(values), len(values) - len(defaults)
    while keep > required and values[keep - 1] == defaults[keep - 1 - required]:
        keep -= 1
    return values[:keep]
