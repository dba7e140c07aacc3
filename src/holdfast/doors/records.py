"""Spooled lines at the node: each is checked before it is stored, a few ask for something, all can be read again.

EVD-005: only `LEASE_COMPLETED` and `LEASE_FAILED` change anything; what they ask for is signed inside of them, so that
it does not matter in which batch they travel (PRV-003). EVD-007: what is no record, or asks under a false signature, is
a dead letter; where it is no record, a line that says so takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from crc32c import crc32c

from holdfast.core.canon import H
from holdfast.core.event import PAYLOAD_TAG
from holdfast.core.evidence.letters import RAW_BYTES_MAX, REASON_MAX, Dead
from holdfast.core.evidence.marks import RECORDS_BYTES_MAX, Ending
from holdfast.core.lease.acts import FailLease
from holdfast.core.proof.envelope import Envelope
from holdfast.core.values import Digest, LeaseId, ProviderId
from holdfast.doors.completing import is_signed
from holdfast.doors.runs import last_type_of
from holdfast.spool import record
from holdfast.wire.acts import to_sign_failure

COMPLETED, FAILED = "LEASE_COMPLETED", "LEASE_FAILED"
STAND_IN: Final = "DEAD_LETTER"
"""The type of the line that stands where a record was none; nobody may send it."""
LINE_BYTES_MAX: Final = record.RECORD_BYTES_MAX + (64 << 10)
RECORDS_MAX: Final = 65_536
UUID_MAX: Final = 128
DEAD_MAX: Final = 64
"""How many records, and how many dead ones, are stored at a time."""
MALFORMED, WRONG_SCHEMA, TOO_LARGE, FORGED, NO_OUTPUT = "Malformed", "WrongSchema", "TooLarge", "Forged", "NoOutput"
"""Why a record is refused for good."""
ENDINGS: Final = {record.BLOCK_FENCE: Ending.FENCE, record.CHANNEL_TERMINATED: Ending.TERMINATED}
Verify = Callable[[bytes, bytes, bytes], bool]


class From(msgspec.Struct, frozen=True):
    """Whose lines they are."""

    provider_id: ProviderId
    public: bytes
    channel: str
    session: str


class Asked(msgspec.Struct, frozen=True):
    """What a record asks for, under a good signature."""

    sequence: int
    line: bytes
    what: Envelope | FailLease


class Examined(msgspec.Struct):
    """What was found in some lines that follow each other."""

    lines: list[bytes] = []
    """So many of them are looked at, from the first on, as they are to be stored."""
    asked: list[Asked] = []
    dead: list[Dead] = []
    ending: Ending = Ending.NONE


class Seen(msgspec.Struct, gc=False):
    """A record as far as the node looks into it."""

    schema_version: int
    channel_id: str
    playout_session_id: str
    sequence: int | str
    event_uuid: str
    payload_type: str
    payload: msgspec.Raw
    emitted_utc: str = ""


class _Completion(msgspec.Struct, frozen=True):
    type: int
    method: str
    body: str
    signature: str


class _Failure(msgspec.Struct, frozen=True):
    lease_id: str
    reason: str
    signature: str


_decode: Final = msgspec.json.Decoder(Seen).decode
_decode_completion: Final = msgspec.json.Decoder(_Completion).decode
_decode_failure: Final = msgspec.json.Decoder(_Failure).decode
_encode: Final = msgspec.json.Encoder().encode
No = tuple[str, str]
"""Why not: a name and a sentence."""


# ------------------------------------------------------------------------------------------------ checking


def examine(who: From, verify: Verify, first: int, lines: Sequence[bytes]) -> Examined:
    """Check lines that should begin with the sequence `first`, and read what they ask for. It may take a while."""
    if len(lines) <= RECORDS_MAX and sum(map(len, lines)) + len(lines) <= RECORDS_BYTES_MAX:
        last_type = last_type_of((who.channel, who.session), first, lines, NOT_PLAIN)
        if last_type is not None and max(map(len, lines)) <= LINE_BYTES_MAX:
            return Examined(list(lines), ending=ENDINGS.get(last_type, Ending.NONE))
    return examine_each(who, verify, first, lines)


def examine_each(who: From, verify: Verify, first: int, lines: Sequence[bytes]) -> Examined:
    """The same one by one, for whatever is not plain."""
    found, size = Examined(), 0
    some = list(lines[:RECORDS_MAX])
    are_ours = record.are_next(some, record.head_of(who.channel, who.session), first)
    for sequence, line in enumerate(some, start=first):
        size += min(len(line), LINE_BYTES_MAX) + 1
        if len(found.dead) >= DEAD_MAX or (found.lines and size > RECORDS_BYTES_MAX):
            break
        seen = (_plainly_in(who, sequence, line) if are_ours else None) or seen_in(who, sequence, line)
        if not isinstance(seen, Seen):
            found.dead.append(dead := buried(sequence, seen, line))
            found.lines.append(stand_in(who, dead))
            found.ending = Ending.NONE
            continue
        found.lines.append(line)
        found.ending = ENDINGS.get(seen.payload_type, Ending.NONE)
        if (ask := _ASKS.get(seen.payload_type)) is not None:
            _note(found, sequence, line, ask(who, verify, seen.payload))
    return found


def _note(found: Examined, sequence: int, line: bytes, asked: Envelope | FailLease | No) -> None:
    if isinstance(asked, tuple):
        found.dead.append(buried(sequence, asked, line, is_stored=True))
    else:
        found.asked.append(Asked(sequence, line, asked))


def _plainly_in(who: From, sequence: int, line: bytes) -> Seen | None:
    """The quick yes to a line of ours whose beginning and CRC fit; None means: look closely."""
    try:
        seen = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    is_here = seen.sequence == sequence and seen.playout_session_id == who.session and seen.channel_id == who.channel
    is_plain = seen.schema_version == 1 and len(line) <= LINE_BYTES_MAX and line.isascii() and b"\n" not in line
    is_whole = 0 < len(seen.event_uuid) <= UUID_MAX and seen.payload_type != STAND_IN
    return seen if is_here and is_plain and is_whole and bytes(seen.payload)[:1] == b"{" else None


def seen_in(who: From, sequence: int, line: bytes) -> Seen | No:
    """The record that should be here, or why the line is none."""
    if len(line) > LINE_BYTES_MAX:
        return TOO_LARGE, f"{len(line)} bytes, at most {LINE_BYTES_MAX}"
    if record.is_sealed(line):
        if line[-10:] != b'%08x"}' % crc32c(line[: -record.TAIL]):
            return MALFORMED, "its CRC does not fit"
    elif isinstance(plain := record.read(line, who.channel, who.session), str):
        return MALFORMED, plain
    try:
        seen = _decode(line)
        line.isascii() or line.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return MALFORMED, "not a whole record"
    return why_not_here(who, sequence, seen, line) or seen


def why_not_here(who: From, sequence: int, seen: Seen, line: bytes) -> No | None:
    if seen.schema_version != 1:
        return WRONG_SCHEMA, f"schema_version {seen.schema_version}, 1 is known"
    if (seen.channel_id, seen.playout_session_id) != (who.channel, who.session):
        belongs = f"session {seen.playout_session_id[:60]!r} of channel {seen.channel_id[:60]!r}"
        return MALFORMED, f"it belongs to {belongs}"
    if str(seen.sequence) != str(sequence):
        return MALFORMED, f"it says that it is {str(seen.sequence)[:24]}"
    if not 1 <= len(seen.event_uuid) <= UUID_MAX:
        return MALFORMED, f"its event_uuid is not a text of 1 to {UUID_MAX} characters"
    if bytes(seen.payload)[:1] != b"{" or seen.payload_type == STAND_IN:
        return MALFORMED, "its payload is no object" if seen.payload_type != STAND_IN else f"{STAND_IN} is reserved"
    return (MALFORMED, "a line end in its midst") if b"\n" in line else None


def _completed(who: From, verify: Verify, payload: msgspec.Raw) -> Envelope | No:
    proof = _proof_in(payload)
    if proof is None:
        return MALFORMED, "what it asks for cannot be read"
    return proof if is_signed(verify, who.public, proof) else (FORGED, "its signature does not fit")


def _proof_in(payload: msgspec.Raw) -> Envelope | None:
    try:
        told = _decode_completion(payload)
        return Envelope(told.type, told.method, bytes.fromhex(told.body), bytes.fromhex(told.signature))
    except (msgspec.DecodeError, ValueError):
        return None


def completion_in(line: bytes) -> Envelope | None:
    """The proof that a record carries."""
    try:
        return _proof_in(_decode(line).payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _failed(who: From, verify: Verify, payload: msgspec.Raw) -> FailLease | No:
    try:
        told = _decode_failure(payload)
        lease_id, signature = LeaseId(bytes.fromhex(told.lease_id)), bytes.fromhex(told.signature)
    except (msgspec.DecodeError, ValueError):
        return MALFORMED, "what it asks for cannot be read"
    if not verify(who.public, to_sign_failure(lease_id, told.reason), signature):
        return FORGED, "its signature does not fit"
    return FailLease(lease_id, who.provider_id, told.reason)


_ASKS: Final[dict[str, Callable[[From, Verify, msgspec.Raw], Envelope | FailLease | No]]] = {
    COMPLETED: _completed,
    FAILED: _failed,
}

NOT_PLAIN: Final = frozenset({*_ASKS, STAND_IN})
"""Types of records that are looked at one by one."""


# ------------------------------------------------------------------------------------------------ storing


def packed(lines: Sequence[bytes]) -> bytes:
    """Lines as they are stored: byte for byte, each with its end."""
    return b"\n".join([*lines, b""])


def buried(sequence: int, why: No, raw: bytes, *, is_stored: bool = False) -> Dead:
    name, reason = why
    digest = Digest(H(PAYLOAD_TAG, raw))
    return Dead(sequence, name, reason[:REASON_MAX], raw[:RAW_BYTES_MAX], len(raw), digest, is_stored)


def stand_in(who: From, dead: Dead) -> bytes:
    """The line that keeps the numbering whole where a record was none."""
    about = {"name": dead.name, "reason": dead.reason, "size": dead.size, "digest": dead.digest.hex()}
    line: dict[str, Any] = {"schema_version": 1, "channel_id": who.channel, "playout_session_id": who.session}
    line |= {"sequence": dead.sequence, "event_uuid": "", "emitted_utc": "", "payload_type": STAND_IN}
    return _encode(line | {"payload": about})


def is_same(stored: bytes, line: bytes) -> bool:
    """EVD-003: whether a line that comes again is the record that is stored, by its `event_uuid`."""
    if stored == line:
        return True
    try:
        before = _decode(stored)
        if before.payload_type == STAND_IN:
            return bytes.fromhex(msgspec.json.decode(before.payload)["digest"]) == H(PAYLOAD_TAG, line)
        return before.event_uuid == _decode(line).event_uuid
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
