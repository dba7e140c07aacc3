"""Records that repeat what an event or a command says: the fields of the same name are copied."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

import msgspec

R = TypeVar("R", bound=msgspec.Struct)


def record_from(type_: type[R], source: msgspec.Struct, **given: Any) -> R:
    """A record with the given fields, and with those of the source that have the same name."""
    copied = {name: getattr(source, name) for name in shared_fields(type_, type(source)) if name not in given}
    return type_(**copied, **given)


@lru_cache
def shared_fields(type_: type[msgspec.Struct], source: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(name for name in type_.__struct_fields__ if name in source.__struct_fields__)
