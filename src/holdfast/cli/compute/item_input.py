"""The fields of `compute dataitem-id`: the seed of a key, tags as pairs of text, and an item's data."""

from __future__ import annotations

from typing import cast

from holdfast.cli.compute import readers
from holdfast.cli.compute.strict_json import InputFault, InvalidInput
from holdfast.core.base.errors import Refused
from holdfast.wire.ans104 import Tag, build_item, why_not_tags


def tags() -> readers.FieldReader:
    """Pairs of a name and a value, within the limits of ANS-104."""
    pairs = readers.array_of(readers.array_of(readers.text()))

    def read(value: object, path: str) -> list[Tag]:
        texts = cast("list[list[str]]", pairs.read(value, path))
        faults = [
            InputFault(f"{path}[{number}]", f"{len(pair)} items, expected a name and a value")
            for number, pair in enumerate(texts)
            if len(pair) != 2
        ]
        if faults:
            raise InvalidInput(*faults)
        encoded = [(name.encode("utf-8"), text.encode("utf-8")) for name, text in texts]
        if (why_not := why_not_tags(encoded)) is not None:
            raise InvalidInput(InputFault(path, why_not.message))
        return encoded

    return readers.FieldReader("[[name, value]]", read)


def dataitem(*, seed: bytes, tags: list[Tag], data: bytes) -> tuple[str, bytes, int]:
    """Id, owner and length of the whole item."""
    from holdfast.adapters.keys.signing import SigningKey  # noqa: PLC0415 - the other names need no cryptography

    signer = SigningKey.from_seed(seed)
    item = build_item(signer, tags, data)
    assert not isinstance(item, Refused), "the tags were checked when they were read"
    return item[0], signer.public, len(item[1])
