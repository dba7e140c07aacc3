"""The fast path accepts exactly what validation one by one accepts, also where a forger writes right CRCs."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from crc32c import crc32c
from tests.counts import counts

from holdfast.adapters.keys.signing import verify
from holdfast.api.evidence import fast_path, validation
from holdfast.api.evidence.validation import RecordSender, validate, validate_each
from holdfast.core.base.values import ProviderId
from holdfast.core.evidence.model import SessionEnd
from holdfast.spool.files.record import Encoder

WHO = RecordSender(ProviderId(b"p" * 32), b"k" * 32, "air", "s1")
FIRST = 1_000


def some(count: int, payload_type: str = "SEGMENT_END", first: int = FIRST) -> list[bytes]:
    encoder = Encoder(WHO.channel, WHO.session, bytes(16))
    payload = '{"block_id":"ä"}'.encode()
    return [encoder.line(first + n, 1_771_000_000_123, f'"{payload_type}"', payload)[:-1] for n in range(count)]


def sealed(line: bytes) -> bytes:
    """As somebody writes it who knows how a CRC is made."""
    body = line[: line.rindex(b',"crc32c"')] if b',"crc32c"' in line else line[:-1]
    return body + b',"crc32c":"%08x"}' % crc32c(body)


def test_a_run_of_plain_records_is_not_validated_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def must_not_run(*_: Any) -> None:
        raise AssertionError("each was looked at")

    monkeypatch.setattr(validation, "validate_each", must_not_run)
    for first in (1, 990, FIRST, 99_999):
        lines = [*some(30, first=first), *some(1, "BLOCK_FENCE", first + 30)]
        found = validate(WHO, verify, first, lines)
        assert (found.lines, found.rejected, found.requests, found.end) == (lines, [], [], SessionEnd.FENCE)


FAULTS = {
    "another sequence later": (b'"event_uuid"', b'"sequence":7,"event_uuid"'),
    "another channel later": (b'"event_uuid"', b'"channel_id":"other","event_uuid"'),
    "another session later": (b'"event_uuid"', b'"playout_session_id":"s2","event_uuid"'),
    "another schema later": (b'"event_uuid"', b'"schema_version":2,"event_uuid"'),
    "a type that asks": (b'"SEGMENT_END"', b'"LEASE_FAILED"'),
    "a reserved type": (b'"SEGMENT_END"', b'"DEAD_LETTER"'),
    "no object": (b'"payload":{', b'"payload":[{'),
    "a payload that is null": ('"payload":{"block_id":"ä"}'.encode(), b'"payload":null'),
    "no JSON": (b'"payload":{', b'"payload":{{'),
    "no UTF-8": ("ä".encode(), b"\xe4"),
    "a line end": ("ä".encode(), b"\n"),
    "a line end between fields": (b',"payload"', b',\n"payload"'),
    "no uuid": (b'"event_uuid":"', b'"event_uuid":"","x":"'),
    "a long uuid": (b'"event_uuid":"', b'"event_uuid":"' + b"u" * 128),
    "two records": (b'"payload":{', b'"payload":{}},{"payload":{'),
    "deep": ("ä".encode(), b'"' + b',"x":' + b"[" * 5_000 + b"]" * 5_000 + b',"y":"'),
}


@pytest.mark.rule("EVD-007")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_record_that_is_wrong_under_a_good_crc_is_found_among_good_ones(fault: str) -> None:
    lines = some(20)
    lines[11] = sealed(lines[11].replace(*FAULTS[fault], 1))
    found = validate(WHO, verify, FIRST, lines)
    assert found == validate_each(WHO, verify, FIRST, lines)
    assert [dead.sequence for dead in found.rejected] == [FIRST + 11]


@pytest.mark.rule("EVD-007")
def test_whatever_is_done_to_bytes_is_judged_the_same_way_as_one_by_one() -> None:
    random = Random(20261116)
    for _ in range(counts(400, 20_000)):
        lines = some(6)
        at = random.randrange(6)
        line = bytearray(lines[at])
        for _ in range(random.randrange(1, 3)):
            where = random.randrange(len(line))
            if random.random() < 0.5:
                line[where] = random.randrange(256)
            else:
                line[where:where] = random.choice((b'"', b"{", b"}", b",", b"\\", b"[", b"\n", b":"))
        lines[at] = sealed(bytes(line)) if random.random() < 0.7 else bytes(line)
        assert validate(WHO, verify, FIRST, lines) == validate_each(WHO, verify, FIRST, lines)


def test_what_the_fast_path_accepts_is_accepted_one_by_one() -> None:
    lines = some(3)
    plain = fast_path.last_type_of(("air", "s1"), FIRST, lines, frozenset())
    assert plain == "SEGMENT_END"
    assert fast_path.last_type_of(("air", "s1"), FIRST + 1, lines, frozenset()) is None
    assert fast_path.last_type_of(("air", "s2"), FIRST, lines, frozenset()) is None
    assert fast_path.last_type_of(("air", "s1"), FIRST, lines, frozenset({"SEGMENT_END"})) is None
    assert fast_path.last_type_of(("air", "s1"), FIRST, [], frozenset()) is None


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4])
def test_a_wrong_line_is_found_in_whichever_slice_it_is(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    monkeypatch.setattr(fast_path, "SLICE_LINES", 2)
    lines = some(5)
    assert fast_path.last_type_of(("air", "s1"), FIRST, lines, frozenset()) == "SEGMENT_END"
    lines[at] = lines[(at + 1) % 5]
    assert fast_path.last_type_of(("air", "s1"), FIRST, lines, frozenset()) is None
