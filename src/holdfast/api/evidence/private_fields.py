"""Hides from readers of evidence what a record carries of its job: the payload and the output (RPC-002).

They travel in the records so that a spool is enough to go on with a lease. Who may read them asks for the job or for
its output, where the rules of the job apply.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.api.evidence.requests import ACCEPTED, COMPLETED

PRIVATE_FIELDS: Final = {ACCEPTED: "payload", COMPLETED: "output"}
"""The field of a record's payload that belongs to the job, by the type of the record."""
_NAMES: Final = tuple(name.encode() for name in PRIVATE_FIELDS)


def hide_private(line: bytes) -> bytes:
    """The line without what belongs to its job. A line that carries nothing of it is returned as it is.

    A changed line says how long the hidden text was, and has no CRC: its bytes are not those that were spooled. Bytes
    that are no record, as they lie in dead letters, are not changed: only operators and auditors read those.
    """
    if not any(name in line for name in _NAMES):
        return line
    try:
        record: Any = msgspec.json.decode(line)
        payload, field = record["payload"], PRIVATE_FIELDS[record["payload_type"]]
        hidden = payload[field]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError):
        return line
    payload[field] = {"hidden_characters": len(hidden) if isinstance(hidden, str) else 0}
    record.pop("crc32c", None)
    return msgspec.json.encode(record)
