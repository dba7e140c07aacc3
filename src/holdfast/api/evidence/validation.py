"""Validates spooled lines before they are stored, and reads the requests that some of them carry.

EVD-005: only `LEASE_ACCEPTED`, `LEASE_COMPLETED` and `LEASE_FAILED` change state (`requests`). EVD-007: a line that is
not a record, or a request with a wrong signature, becomes a dead letter; a line that is not a record is replaced by a
placeholder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from crc32c import crc32c

from holdfast.api.evidence.fast_path import last_type_of
from holdfast.api.evidence.requests import (
    MALFORMED,
    REQUEST_READERS,
    TOO_LARGE,
    Completion,
    Reason,
    Request,
    RequestSigner,
    read_completion_payload,
)
from holdfast.api.evidence.work_logs import leases_with_messages
from holdfast.core.base.canonical import H
from holdfast.core.base.event import PAYLOAD_TAG, payload_digest
from holdfast.core.base.values import ZERO_DIGEST, Digest, LeaseId, ProviderId, VerifySignature
from holdfast.core.evidence.dead_letters import RAW_BYTES_MAX, REASON_MAX
from holdfast.core.evidence.messages import RejectedRecord
from holdfast.core.evidence.model import RECORDS_BYTES_MAX, SessionEnd
from holdfast.spool.files import record
from holdfast.wire.group_signatures import GroupVerifier
from holdfast.wire.retrovue_codec import why_not_record

PLACEHOLDER: Final = "DEAD_LETTER"
"""Type of the line that replaces a line that is not a record; a sender must not use it."""
LINE_BYTES_MAX: Final = record.RECORD_BYTES_MAX + (64 << 10)
RECORDS_MAX: Final = 65_536
"""Records that are stored at a time."""
REJECTED_MAX: Final = 64
"""Rejected records that are stored at a time."""
UUID_MAX: Final = 128
WRONG_SCHEMA: Final = "WrongSchema"
"""Why a record is rejected for good, besides the reasons of requests."""
SESSION_ENDS: Final = {record.BLOCK_FENCE: SessionEnd.FENCE, record.CHANNEL_TERMINATED: SessionEnd.TERMINATED}


class RecordSender(msgspec.Struct, frozen=True):
    """Who sends the lines, and for which session."""

    provider_id: ProviderId
    public: bytes
    channel: str
    session: str


class RecordRequest(msgspec.Struct, frozen=True):
    """The request of a record, with a valid signature."""

    sequence: int
    line: bytes
    request: Request


class ValidatedLines(msgspec.Struct):
    """The result of validating lines that follow each other."""

    lines: list[bytes] = []
    """Those that were validated, from the first on, as they are to be stored."""
    requests: list[RecordRequest] = []
    rejected: list[RejectedRecord] = []
    end: SessionEnd = SessionEnd.NONE
    packed: bytes = b""
    """The lines as they are stored, with their digest, and the leases that they have messages of: see `prepare`."""
    digest: Digest = ZERO_DIGEST
    leases: tuple[LeaseId, ...] = ()


class RecordFields(msgspec.Struct, gc=False):
    """The fields of a record that the node reads."""

    schema_version: int
    channel_id: str
    playout_session_id: str
    sequence: int | str
    event_uuid: str
    payload_type: str
    payload: msgspec.Raw
    emitted_utc: str = ""


_decode: Final = msgspec.json.Decoder(RecordFields).decode
_encode: Final = msgspec.json.Encoder().encode


# ------------------------------------------------------------------------------------------------ checking


def prepare(sender: RecordSender, verify: VerifySignature, first: int, lines: Sequence[bytes]) -> ValidatedLines:
    """Validate, and pack what is stored: all that needs no state, and takes a while."""
    validated = validate(sender, verify, first, lines)
    validated.packed = pack_lines(validated.lines)
    validated.digest = payload_digest(validated.packed)
    validated.leases = leases_with_messages(validated.lines) if sender.provider_id else ()
    return validated


def validate(sender: RecordSender, verify: VerifySignature, first: int, lines: Sequence[bytes]) -> ValidatedLines:
    """Check lines that should begin with the sequence `first`, and read their requests."""
    if len(lines) <= RECORDS_MAX and sum(map(len, lines)) + len(lines) <= RECORDS_BYTES_MAX:
        last_type = last_type_of((sender.channel, sender.session), first, lines, NOT_PLAIN)
        if last_type is not None and max(map(len, lines)) <= LINE_BYTES_MAX:
            return ValidatedLines(list(lines), end=SESSION_ENDS.get(last_type, SessionEnd.NONE))
    return validate_each(sender, verify, first, lines)


def validate_each(sender: RecordSender, verify: VerifySignature, first: int, lines: Sequence[bytes]) -> ValidatedLines:
    """The same line by line, for lines that are not plain."""
    validated, size = ValidatedLines(), 0
    signer = RequestSigner(sender.provider_id, sender.public, GroupVerifier(verify))
    lines = list(lines[:RECORDS_MAX])
    are_expected = record.are_expected_lines(lines, record.line_head(sender.channel, sender.session), first)
    for sequence, line in enumerate(lines, start=first):
        size += min(len(line), LINE_BYTES_MAX) + 1
        if len(validated.rejected) >= REJECTED_MAX or (validated.lines and size > RECORDS_BYTES_MAX):
            break
        fields = (_read_plain(sender, sequence, line) if are_expected else None) or read_record(sender, sequence, line)
        if not isinstance(fields, RecordFields):
            validated.rejected.append(rejected := reject(sequence, fields, line))
            validated.lines.append(placeholder(sender, rejected))
            validated.end = SessionEnd.NONE
            continue
        validated.lines.append(line)
        validated.end = SESSION_ENDS.get(fields.payload_type, SessionEnd.NONE)
        if (read_request := REQUEST_READERS.get(fields.payload_type)) is not None:
            _add_request(validated, sequence, line, read_request(signer, fields.payload))
    return validated


def _add_request(validated: ValidatedLines, sequence: int, line: bytes, read: Request | Reason | None) -> None:
    if read is None:
        return
    if isinstance(read, tuple):
        validated.rejected.append(reject(sequence, read, line, is_stored=True))
    else:
        validated.requests.append(RecordRequest(sequence, line, read))


def _read_plain(sender: RecordSender, sequence: int, line: bytes) -> RecordFields | None:
    """The fast check of a line whose head and CRC are right; None means that `read_record` has to decide."""
    try:
        fields = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    is_in_place = (fields.channel_id, fields.playout_session_id, fields.sequence) == (
        sender.channel,
        sender.session,
        sequence,
    )
    is_plain = fields.schema_version == 1 and len(line) <= LINE_BYTES_MAX and line.isascii() and b"\n" not in line
    is_whole = 0 < len(fields.event_uuid) <= UUID_MAX and fields.payload_type != PLACEHOLDER
    return fields if is_in_place and is_plain and is_whole and bytes(fields.payload)[:1] == b"{" else None


def read_record(sender: RecordSender, sequence: int, line: bytes) -> RecordFields | Reason:
    """The record that is expected here, or why the line is not that record."""
    if len(line) > LINE_BYTES_MAX:
        return TOO_LARGE, f"{len(line)} bytes, at most {LINE_BYTES_MAX}"
    if record.has_crc_field(line):
        if line[-10:] != b'%08x"}' % crc32c(line[: -record.CRC_FIELD_BYTES]):
            return MALFORMED, "its CRC is wrong"
    elif isinstance(parsed := record.parse(line, sender.channel, sender.session), str):
        return MALFORMED, parsed if line[:1] == b"{" else why_not_record(line)
    try:
        fields = _decode(line)
        line.isascii() or line.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return MALFORMED, "not a whole record"
    return why_not_in_place(sender, sequence, fields, line) or fields


def why_not_in_place(sender: RecordSender, sequence: int, fields: RecordFields, line: bytes) -> Reason | None:
    if fields.schema_version != 1:
        return WRONG_SCHEMA, f"schema_version is {fields.schema_version}, not 1"
    if (fields.channel_id, fields.playout_session_id) != (sender.channel, sender.session):
        owner = f"session {fields.playout_session_id[:60]!r} of channel {fields.channel_id[:60]!r}"
        return MALFORMED, f"it belongs to {owner}"
    if str(fields.sequence) != str(sequence):
        return MALFORMED, f"its sequence is {str(fields.sequence)[:24]}"
    if not 1 <= len(fields.event_uuid) <= UUID_MAX:
        return MALFORMED, f"its event_uuid is not a text of 1 to {UUID_MAX} characters"
    if fields.payload_type == PLACEHOLDER:
        return MALFORMED, f"{PLACEHOLDER} is reserved"
    if bytes(fields.payload)[:1] != b"{":
        return MALFORMED, "its payload is not an object"
    return (MALFORMED, "it contains a line end") if b"\n" in line else None


def read_completion(line: bytes) -> Completion | None:
    """The completion that a record carries; its signature was verified when it was received."""
    try:
        return read_completion_payload(_decode(line).payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


NOT_PLAIN: Final = frozenset({*REQUEST_READERS, PLACEHOLDER})
"""Types of records that are validated one by one."""


# ------------------------------------------------------------------------------------------------ storing


def pack_lines(lines: Sequence[bytes]) -> bytes:
    """Lines as they are stored: byte for byte, each with its line end."""
    return b"\n".join([*lines, b""])


def reject(sequence: int, why: Reason, raw: bytes, *, is_stored: bool = False) -> RejectedRecord:
    name, reason = why
    digest = Digest(H(PAYLOAD_TAG, raw))
    return RejectedRecord(
        sequence=sequence,
        name=name,
        reason=reason[:REASON_MAX],
        raw=raw[:RAW_BYTES_MAX],
        size=len(raw),
        digest=digest,
        is_stored=is_stored,
    )


def placeholder(sender: RecordSender, rejected: RejectedRecord) -> bytes:
    """The line that takes the sequence of a line that is not a record."""
    payload = {
        "name": rejected.name,
        "reason": rejected.reason,
        "size": rejected.size,
        "digest": rejected.digest.hex(),
    }
    line: dict[str, Any] = {"schema_version": 1, "channel_id": sender.channel, "playout_session_id": sender.session}
    line |= {"sequence": rejected.sequence, "event_uuid": "", "emitted_utc": "", "payload_type": PLACEHOLDER}
    return _encode(line | {"payload": payload})


def is_same_record(stored: bytes, line: bytes) -> bool:
    """EVD-003: whether a line that is received again is the stored record, by its `event_uuid`."""
    if stored == line:
        return True
    try:
        before = _decode(stored)
        if before.payload_type == PLACEHOLDER:
            return bytes.fromhex(msgspec.json.decode(before.payload)["digest"]) == H(PAYLOAD_TAG, line)
        return before.event_uuid == _decode(line).event_uuid
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
