"""One record, one line: written in one fixed shape with its CRC at the end, read back strictly (SP-006).

The shape is that of v0.1 with two keys behind it. `durable` stands in the first record of each commit and says which
sequence was known durable when it was written. `crc32c` is over the bytes of the line before its own comma.
"""

from __future__ import annotations

import struct
import time
from binascii import hexlify
from functools import lru_cache
from io import BytesIO
from operator import itemgetter
from typing import Any, Final

import msgspec
from crc32c import crc32c
from msgspec import UNSET, UnsetType

from holdfast.core.refusal import Refused
from holdfast.core.values import U64_MAX

RECORD_BYTES_MAX: Final = 1 << 20
DEPTH_MAX: Final = 100
"""So deep may a payload be nested: every reader, however deep it is itself in calls, can follow."""
SHALLOW_BYTES: Final = 2 * DEPTH_MAX
"""Up to this many bytes nothing can be nested deeper."""
MARK_BYTES_MAX: Final = len(f',"durable":{U64_MAX}')
TAIL: Final = len(',"crc32c":"00000000"}')
_CRC_KEY: Final = b',"crc32c":"'
_BETWEEN_SUMS: Final = '"},"crc32c":"'
_MARK_KEY: Final = b',"durable":'
_TYPES_KEPT: Final = 1_024
_COUNTER: Final = 1 << 48
_HEX: Final = tuple(f"{number:02x}" for number in range(256))
_THOUSAND: Final = b"".join(b"\0%03d," % number for number in range(1_000))
_AS_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))

BLOCK_FENCE: Final = "BLOCK_FENCE"
CHANNEL_TERMINATED: Final = "CHANNEL_TERMINATED"
FINALISING: Final = frozenset({BLOCK_FENCE, CHANNEL_TERMINATED})

# For `map`: cutting many lines without a step of Python for each.
_without_end: Final = itemgetter(slice(None, -1))
_body: Final = itemgetter(slice(None, -TAIL))
_tail: Final = itemgetter(slice(-TAIL, None))


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


class Bare(Record, gc=False, forbid_unknown_fields=True):
    """A record with nothing but the known fields."""


class Seen(msgspec.Struct, frozen=True, gc=False):
    """What recovery needs to know of a valid record."""

    sequence: int
    durable: int | None
    has_crc: bool
    payload_type: str
    emitted_utc: str


_decode: Final = msgspec.json.Decoder(Record).decode
_decode_bare: Final = msgspec.json.Decoder(Bare).decode
encode: Final = msgspec.json.Encoder().encode


def head_of(channel: str, session: str) -> bytes:
    """How every record of ours in this session begins."""
    return b'{"schema_version":1,"channel_id":"%s","playout_session_id":"%s","sequence":' % (
        channel.encode(),
        session.encode(),
    )


def sealed(body: bytes) -> bytes:
    """The line of these bytes: their CRC behind them, and the end."""
    return b'%b,"crc32c":"%08x"}\n' % (body, crc32c(body))


def marked(line: bytes, durable: int) -> bytes:
    """The same record as the first one of a commit."""
    return sealed(b'%b,"durable":%d' % (line[: -TAIL - 1], durable))


class Encoder:
    """Makes the lines of one session. A record's id is drawn once and never again (SP-004).

    The ids are a UUID's shape: 74 random bits from `seed` for this opening of the session, then a counter.
    """

    def __init__(self, channel: str, session: str, seed: bytes) -> None:
        drawn = seed.hex()
        variant = "89ab"[seed[8] & 3]
        uuid = f"{drawn[:8]}-{drawn[8:12]}-4{drawn[13:16]}-{variant}{drawn[17:20]}-"
        self._head, self._uuid = head_of(channel, session).decode(), f',"event_uuid":"{uuid}'
        self._count = int.from_bytes(seed[10:16]) >> 1
        self._uuid_of_256 = f"{self._uuid}{self._count >> 8:010x}"
        self.types: dict[str, str] = {}
        self._ms, self._kind, self._middle = -1, "", ""

    def line(self, sequence: int, now_ms: int, payload_type: str, payload: bytes) -> bytes:
        """One whole line. `payload_type` and `payload` are JSON already.

        Text is put together and encoded once: formatting bytes takes longer, and so does a number as hex.
        """
        self._count = count = (self._count + 1) % _COUNTER
        low = count & 255
        if not low:
            self._uuid_of_256 = f"{self._uuid}{count >> 8:010x}"
        if now_ms != self._ms or payload_type != self._kind:
            self._ms, self._kind = now_ms, payload_type
            when = f"{utc(now_ms // 1_000)}.{now_ms % 1_000:03d}Z"
            self._middle = f'","emitted_utc":"{when}","payload_type":{payload_type},"payload":'
        body = f"{self._head}{sequence}{self._uuid_of_256}{_HEX[low]}{self._middle}".encode() + payload
        return body + b',"crc32c":"%b"}\n' % hexlify(crc32c(body).to_bytes(4))

    def type_of(self, payload_type: str) -> str | Refused:
        """The type as JSON, remembered: a session has few."""
        known = self.types.get(payload_type)
        if known is not None:
            return known
        if not isinstance(payload_type, str) or not 1 <= len(payload_type) <= 128:
            return Refused("SEC-001", "payload_type is not a text of 1 to 128 characters", "", "InvalidParams")
        try:
            text = encode(payload_type).decode()
        except UnicodeEncodeError:
            return Refused("SEC-001", "payload_type is not Unicode text", "", "InvalidParams")
        if len(self.types) < _TYPES_KEPT:
            self.types[payload_type] = text
        return text


def why_not_payload(payload: object) -> Refused:
    """What is wrong with a payload that is no JSON object or does not fit into a record."""
    try:
        text = encode(payload)
    except Exception as fault:
        hint = "use objects, lists, texts, numbers"
        return Refused("SEC-001", f"the payload is not JSON: {fault}", hint, "InvalidParams")
    if text[:1] != b"{":
        return Refused("SEC-001", "the payload is not a JSON object", 'wrap the value: {"value": …}', "InvalidParams")
    if len(text) > RECORD_BYTES_MAX:
        says = f"the payload has {len(text)} bytes, at most {RECORD_BYTES_MAX}"
        return Refused("SEC-001", says, "keep large bytes elsewhere and spool their digest", "InvalidParams")
    says = f"the payload is nested deeper than {DEPTH_MAX} levels"
    if b"\n" in text:
        says = "the payload has a line end outside of its texts, and a record is one line"
    return Refused("SEC-001", says, "write it flat, on one line", "InvalidParams")


def is_too_much(text: bytes) -> bool:
    """Larger, or nested deeper, than a payload may be."""
    return len(text) > RECORD_BYTES_MAX or is_too_deep(text)


def is_too_deep(text: bytes) -> bool:
    """Whether JSON is nested deeper than all readers can follow: such a record would look damaged to some of them.

    Without escapes every second piece between quotes is a text; of the brackets that are left each round takes the
    innermost ones away.
    """
    if text.count(b"[") + text.count(b"{") <= DEPTH_MAX:
        return False
    bare = text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text
    brackets = b"".join(bare.split(b'"')[::2]).translate(_AS_ONE_KIND, _NOT_BRACKETS)
    for _ in range(DEPTH_MAX):
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


@lru_cache(maxsize=8)
def utc(second: int) -> str:
    """A whole second of Unix time as ISO 8601, without the zone."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


# ------------------------------------------------------------------------------------------------ reading


def is_next(line: bytes, head: bytes, sequence: int) -> bool:
    """The quick yes: a line as we write it, with this sequence and a CRC that fits. A no means: look closely."""
    return (
        line.startswith(b"%b%d," % (head, sequence))
        and line[-TAIL:-10] == _CRC_KEY
        and line[-10:] == b'%08x"}' % crc32c(line[:-TAIL])
    )


def lines_in(raw: bytes) -> tuple[list[bytes], bytes]:
    """The whole lines, without their ends, and what is left behind the last end. `split` takes half as long again."""
    lines = BytesIO(raw).readlines()
    rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
    return list(map(_without_end, lines)), rest


def are_next(lines: list[bytes], head: bytes, sequence: int) -> bool:
    """The same for many lines at once, about three times as fast. A no may also mean: too mixed to tell."""
    count, digits = len(lines), len(str(sequence))
    if sequence < 1_000 or len(str(sequence + count)) != digits:
        return all(is_next(line, head, sequence + i) for i, line in enumerate(lines))
    width = len(head) + digits + 1
    if b"".join(map(itemgetter(slice(None, width)), lines)) != _beginnings(head, sequence, count, width):
        return False
    sums = struct.pack(f">{count}I", *map(crc32c, map(_body, lines))).hex(",", 4)
    tails = f',"crc32c":"{sums.replace(",", _BETWEEN_SUMS)}"}}'.encode()
    return b"".join(map(_tail, lines)) == tails


def _beginnings(head: bytes, sequence: int, count: int, width: int) -> bytes:
    """How that many lines begin, joined; numbers of four digits or more, all of the same width."""
    first, last = sequence // 1_000, (sequence + count - 1) // 1_000
    thousands = b"".join([_thousand_beginnings(head, number) for number in range(first, last + 1)])
    begin = sequence % 1_000 * width
    return thousands[begin : begin + count * width]


@lru_cache(maxsize=4)
def _thousand_beginnings(head: bytes, number: int) -> bytes:
    """From `number` thousand on: writing out each number would take eight times as long."""
    return _THOUSAND.replace(b"\0", b"%b%d" % (head, number))


def is_sealed(line: bytes) -> bool:
    """It ends with a CRC, right or wrong."""
    return line[-TAIL:-10] == _CRC_KEY


def mark_of(line: bytes) -> int | None:
    """The durable mark of a line that `is_next` said yes to."""
    at = line.rfind(_MARK_KEY, -TAIL - MARK_BYTES_MAX, -TAIL)
    digits = line[at + len(_MARK_KEY) : -TAIL]
    return int(digits) if at >= 0 and digits.isdigit() else None


def read(line: bytes, channel: str, session: str) -> Seen | str:
    """A valid record of this session, or why the line is none. The line comes without its end."""
    has_crc = is_sealed(line)
    if has_crc and line[-10:] != b'%08x"}' % crc32c(line[:-TAIL]):
        return "its CRC does not fit"
    if not line.strip(b"\0"):
        return "NUL-filled"
    try:
        record = _decode(line) if has_crc else _unsealed(line, channel, session)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "not a whole record"
    if record is None:
        return "its CRC is damaged"
    sequence, durable = _number(record.sequence), _number(record.durable)
    if not sequence or (durable is None and record.durable is not UNSET):
        return "its sequence is no number"
    if (record.channel_id, record.playout_session_id) != (channel, session):
        return f"it belongs to session {record.playout_session_id[:140]!r} of channel {record.channel_id[:140]!r}"
    return Seen(sequence, durable if has_crc else None, has_crc, record.payload_type, record.emitted_utc)


def _unsealed(line: bytes, channel: str, session: str) -> Record | None:
    """A v0.1 record, which has no CRC. One of ours whose CRC was damaged must not pass for it: None.

    Ours are known by what a CRC leaves behind, by the shape of one under another name, and by how they begin: such a
    line has no other keys than v0.1 has. Others may have keys we do not know.
    """
    looks_sealed = line[-TAIL : -TAIL + 2] == b',"' and line[-13:-10] == b'":"' and line[-2:] == b'"}'
    is_like_ours = line.startswith(head_of(channel, session))
    record = _decode_bare(line) if is_like_ours else _decode(line)
    return None if looks_sealed or record.crc32c is not UNSET or record.durable is not UNSET else record


def _number(value: int | str | UnsetType) -> int | None:
    """A 64-bit number, written as a number or as a text of digits."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) <= 20 else -1
    return value if isinstance(value, int) and 0 <= value <= U64_MAX else None
