"""One record is one line: written in one fixed shape with its CRC at the end, read back strictly (SP-006).

The shape is that of v0.1 with two more keys. `durable` is in the first record of each commit: the last sequence that
was known to be durable when it was written. `crc32c` covers the bytes of the line before its own comma.
"""

from __future__ import annotations

import json
import struct
import time
from binascii import hexlify
from functools import lru_cache
from io import BytesIO
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, Final

import msgspec
from crc32c import crc32c
from msgspec import UNSET, UnsetType

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import U64_MAX
from holdfast.system.json_depth import is_nested_deeper

RECORD_BYTES_MAX: Final = 1 << 20
DEPTH_MAX: Final = 100
"""How deep a payload may be nested: every reader, however deep its own call stack is, can decode it."""
SHALLOW_BYTES: Final = 2 * DEPTH_MAX
"""A payload of at most this many bytes cannot be nested deeper."""
DURABLE_FIELD_BYTES_MAX: Final = len(f',"durable":{U64_MAX}')
CRC_FIELD_BYTES: Final = len(',"crc32c":"00000000"}')
_CRC_KEY: Final = b',"crc32c":"'
_BETWEEN_SUMS: Final = '"},"crc32c":"'
_DURABLE_KEY: Final = b',"durable":'
_TYPES_KEPT: Final = 1_024
_COUNTER: Final = 1 << 48
_HEX: Final = tuple(f"{number:02x}" for number in range(256))
_THOUSAND: Final = b"".join(b"\0%03d," % number for number in range(1_000))

BLOCK_FENCE: Final = "BLOCK_FENCE"
CHANNEL_TERMINATED: Final = "CHANNEL_TERMINATED"
FINAL_TYPES: Final = frozenset({BLOCK_FENCE, CHANNEL_TERMINATED})

# For `map`: slicing many lines without a Python step for each.
_without_newline: Final = itemgetter(slice(None, -1))
_body: Final = itemgetter(slice(None, -CRC_FIELD_BYTES))
_crc_field: Final = itemgetter(slice(-CRC_FIELD_BYTES, None))


class Record(msgspec.Struct, gc=False):
    """A record's fields; 64-bit numbers may have been written as strings."""

    schema_version: int
    channel_id: str
    playout_session_id: str
    sequence: int | str
    event_uuid: str
    emitted_utc: str
    payload_type: str
    payload: dict[str, Any]
    durable: int | str | UnsetType = UNSET
    crc32c: Any = UNSET


class StrictRecord(Record, gc=False, forbid_unknown_fields=True):
    """A record with only the known fields."""


class RecordSummary(msgspec.Struct, frozen=True, gc=False):
    """What recovery needs of a valid record."""

    sequence: int
    durable: int | None
    has_crc: bool
    payload_type: str
    emitted_utc: str
    is_strict: bool = True
    """False: a complete line of v0.1 that is not strict JSON: a text has bytes that are not UTF-8 or not escaped."""


_decode: Final = msgspec.json.Decoder(Record).decode
_decode_strict: Final = msgspec.json.Decoder(StrictRecord).decode
encode: Final = msgspec.json.Encoder().encode


def line_head(channel: str, session: str) -> bytes:
    """The beginning of every record that we write in this session."""
    return b'{"schema_version":1,"channel_id":"%s","playout_session_id":"%s","sequence":' % (
        channel.encode(),
        session.encode(),
    )


def seal_line(body: bytes) -> bytes:
    """The line of these bytes, with their CRC and a line end."""
    return body + b',"crc32c":"%b"}\n' % hexlify(crc32c(body).to_bytes(4))


def seal_lines(bodies: list[bytes]) -> bytes:
    """`seal_line` for many, joined, in about half the time."""
    sums = hexlify(struct.pack(f">{len(bodies)}I", *map(crc32c, bodies)), ",", 4).split(b",")
    return b"".join(chain.from_iterable(zip(bodies, repeat(_CRC_KEY), sums, repeat(b'"}\n'))))


def durable_field(durable: int) -> bytes:
    """What the first record of a commit has behind its payload."""
    return b"%b%d" % (_DURABLE_KEY, durable)


class Encoder:
    """Makes the lines of one session. Each record gets an id that is never used again (SP-004).

    The ids have the shape of a UUID: 74 random bits from `seed` for this opening of the session, then a counter.
    """

    def __init__(self, channel: str, session: str, seed: bytes) -> None:
        digits = seed.hex()
        variant = "89ab"[seed[8] & 3]
        uuid = f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-"
        self._head, self._uuid = line_head(channel, session).decode(), f',"event_uuid":"{uuid}'
        self._count = int.from_bytes(seed[10:16]) >> 1
        self._uuid_of_256 = f"{self._uuid}{self._count >> 8:010x}"
        self.types: dict[str, bytes] = {}
        """JSON of the types that were used, for a session has few."""
        self.line_bytes_max = len(f"{self._head}{U64_MAX}{self._uuid_of_256}00{_middle(0, '')}") + CRC_FIELD_BYTES + 1
        """Of a line, its type and payload not counted."""
        self._ms, self._kind, self._middle = -1, "", ""

    def line(self, sequence: int, now_ms: int, payload_type: str, payload: bytes) -> bytes:
        """One complete line. `payload_type` and `payload` are JSON already."""
        return seal_line(self.body(sequence, now_ms, payload_type, payload))

    def body(self, sequence: int, now_ms: int, payload_type: str, payload: bytes) -> bytes:
        """The line without its CRC.

        The text is joined and encoded once: formatting bytes takes longer, and so does formatting a number as hex.
        """
        self._count = count = (self._count + 1) % _COUNTER
        low = count & 255
        if not low:
            self._uuid_of_256 = f"{self._uuid}{count >> 8:010x}"
        if now_ms != self._ms or payload_type != self._kind:
            self._ms, self._kind = now_ms, payload_type
            self._middle = _middle(now_ms, payload_type)
        return f"{self._head}{sequence}{self._uuid_of_256}{_HEX[low]}{self._middle}".encode() + payload

    def encode_type(self, payload_type: str) -> bytes | Refused:
        """The type as JSON, cached."""
        known = self.types.get(payload_type)
        if known is not None:
            return known
        if not isinstance(payload_type, str) or not 1 <= len(payload_type) <= 128:
            return Refused("SEC-001", "payload_type is not a text of 1 to 128 characters", "", "InvalidParams")
        try:
            text = encode(payload_type)
        except UnicodeEncodeError:
            return Refused("SEC-001", "payload_type is not Unicode text", "", "InvalidParams")
        if len(self.types) < _TYPES_KEPT:
            self.types[payload_type] = text
        return text


def _middle(now_ms: int, payload_type: str) -> str:
    """Of a line: from the id to the payload."""
    when = f"{utc(now_ms // 1_000)}.{now_ms % 1_000:03d}Z"
    return f'","emitted_utc":"{when}","payload_type":{payload_type},"payload":'


def why_not_payload(payload: object) -> Refused:
    """Why a payload is refused: it is not a JSON object, or does not fit into a record."""
    try:
        text = encode(payload)
    except Exception as fault:
        hint = "use objects, lists, texts, numbers"
        return Refused("SEC-001", f"the payload is not JSON: {fault}", hint, "InvalidParams")
    if text[:1] != b"{":
        return Refused("SEC-001", "the payload is not a JSON object", 'wrap the value: {"value": …}', "InvalidParams")
    if len(text) > RECORD_BYTES_MAX:
        message = f"the payload has {len(text)} bytes, at most {RECORD_BYTES_MAX}"
        return Refused("SEC-001", message, "keep large bytes elsewhere and spool their digest", "InvalidParams")
    message = f"the payload is nested deeper than {DEPTH_MAX} levels"
    if b"\n" in text:
        message = "the payload has a line end outside of its strings, and a record is one line"
    return Refused("SEC-001", message, "write it flat, on one line", "InvalidParams")


def is_too_large(text: bytes) -> bool:
    """Larger, or nested deeper, than a payload may be: readers would take such a record for a damaged one."""
    return len(text) > RECORD_BYTES_MAX or is_nested_deeper(text, DEPTH_MAX)


@lru_cache(maxsize=8)
def utc(second: int) -> str:
    """A whole second of Unix time as ISO 8601, without the zone."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


# ------------------------------------------------------------------------------------------------ reading


def is_expected_line(line: bytes, head: bytes, sequence: int) -> bool:
    """The fast check: a line as we write it, with this sequence and a valid CRC. False means that `parse` decides."""
    return (
        line.startswith(b"%b%d," % (head, sequence))
        and line[-CRC_FIELD_BYTES:-10] == _CRC_KEY
        and line[-10:] == b'%08x"}' % crc32c(line[:-CRC_FIELD_BYTES])
    )


def split_lines(raw: bytes) -> tuple[list[bytes], bytes]:
    """The complete lines, without their ends, and the rest. `split` would take half as long again."""
    lines = BytesIO(raw).readlines()
    rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
    return list(map(_without_newline, lines)), rest


def are_expected_lines(lines: list[bytes], head: bytes, sequence: int) -> bool:
    """`is_expected_line` for many lines at once, about three times as fast. False means that `parse` decides."""
    count, digits = len(lines), len(str(sequence))
    if sequence < 1_000 or len(str(sequence + count)) != digits:
        return all(is_expected_line(line, head, sequence + i) for i, line in enumerate(lines))
    width = len(head) + digits + 1
    if b"".join(map(itemgetter(slice(None, width)), lines)) != _line_heads(head, sequence, count, width):
        return False
    sums = struct.pack(f">{count}I", *map(crc32c, map(_body, lines))).hex(",", 4)
    tails = f',"crc32c":"{sums.replace(",", _BETWEEN_SUMS)}"}}'.encode()
    return b"".join(map(_crc_field, lines)) == tails


def _line_heads(head: bytes, sequence: int, count: int, width: int) -> bytes:
    """The beginnings of `count` lines, joined; sequences of four digits or more, all of the same width."""
    first, last = sequence // 1_000, (sequence + count - 1) // 1_000
    thousands = b"".join([_thousand_line_heads(head, number) for number in range(first, last + 1)])
    begin = sequence % 1_000 * width
    return thousands[begin : begin + count * width]


@lru_cache(maxsize=4)
def _thousand_line_heads(head: bytes, number: int) -> bytes:
    """The beginnings of the lines from `number` thousand on: formatting each number takes eight times as long."""
    return _THOUSAND.replace(b"\0", b"%b%d" % (head, number))


def has_crc_field(line: bytes) -> bool:
    """Whether the line ends with a CRC, valid or not."""
    return line[-CRC_FIELD_BYTES:-10] == _CRC_KEY


def durable_of(line: bytes) -> int | None:
    """The `durable` field of a line that `is_expected_line` accepts."""
    at = line.rfind(_DURABLE_KEY, -CRC_FIELD_BYTES - DURABLE_FIELD_BYTES_MAX, -CRC_FIELD_BYTES)
    digits = line[at + len(_DURABLE_KEY) : -CRC_FIELD_BYTES]
    return int(digits) if at >= 0 and digits.isdigit() else None


def parse(line: bytes, channel: str, session: str) -> RecordSummary | str:
    """A valid record of this session, or why the line is not one. The line comes without its end."""
    has_crc = has_crc_field(line)
    if has_crc and line[-10:] != b'%08x"}' % crc32c(line[:-CRC_FIELD_BYTES]):
        return "CRC mismatch"
    if not line.strip(b"\0"):
        return "NUL-filled"
    is_strict = True
    try:
        record = _decode(line) if has_crc else _decode_without_crc(line, channel, session)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        is_text = isinstance(fault, msgspec.ValidationError)  # it is JSON: reading it less strictly changes nothing
        record, is_strict = None if has_crc or is_text else _decode_leniently(line), False
        if record is None:
            return "not a complete record"
    if record is None:
        return "its CRC field is damaged"
    sequence, durable = _number(record.sequence), _number(record.durable)
    if not sequence or (durable is None and record.durable is not UNSET):
        return "its sequence is not a number"
    if (record.channel_id, record.playout_session_id) != (channel, session):
        return f"it belongs to session {record.playout_session_id[:140]!r} of channel {record.channel_id[:140]!r}"
    return RecordSummary(
        sequence, durable if has_crc else None, has_crc, record.payload_type, record.emitted_utc, is_strict
    )


def _decode_without_crc(line: bytes, channel: str, session: str) -> Record | None:
    """A v0.1 record, which has no CRC; None where it is one of ours whose CRC field is damaged.

    Ours are recognised by what is left of a CRC field, by a field of that shape under another key, and by how they
    begin: a line that begins like ours may have no other keys than v0.1 has. Records of others may have unknown keys.
    """
    looks_sealed = (
        line[-CRC_FIELD_BYTES : -CRC_FIELD_BYTES + 2] == b',"' and line[-13:-10] == b'":"' and line[-2:] == b'"}'
    )
    is_like_ours = line.startswith(line_head(channel, session))
    record = _decode_strict(line) if is_like_ours else _decode(line)
    return None if looks_sealed or record.crc32c is not UNSET or record.durable is not UNSET else record


def _decode_leniently(line: bytes) -> Record | None:
    """A v0.1 record whose texts hold raw bytes that JSON does not allow; None where it is none.

    It may have no other keys than v0.1 has: a record of ours with a damaged CRC field must not pass for one.
    """
    if line[:1] != b"{" or line[-1:] != b"}":
        return None
    try:
        record = msgspec.convert(json.loads(line.decode("utf-8", "replace"), strict=False), StrictRecord)
    except (ValueError, msgspec.ValidationError, RecursionError):
        return None
    return record if record.crc32c is UNSET and record.durable is UNSET else None


def _number(value: int | str | UnsetType) -> int | None:
    """A 64-bit number, written as a number or as a string of digits."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) <= 20 else -1
    return value if isinstance(value, int) and 0 <= value <= U64_MAX else None
