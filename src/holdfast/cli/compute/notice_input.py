"""The root of an archive notice from the fields of a JSON object (NTC-001)."""

from __future__ import annotations

from typing import Any, Final

from holdfast.cli.compute.strict_json import InputFault, InvalidInput
from holdfast.core.archive.notice import ArchiveNotice, notice_root

V1_FIELDS: Final = ("chain_id", "versioned_hash")
"""Version 0 has no such fields: they are not in its root."""


def root(**fields: Any) -> bytes:
    missing = [name for name in V1_FIELDS if fields["version"] == 1 and fields[name] is None]
    if missing:
        raise InvalidInput(*(InputFault(name, "missing") for name in missing))
    return notice_root(ArchiveNotice(**{name: value for name, value in fields.items() if value is not None}))
