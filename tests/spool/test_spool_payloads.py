"""What a payload may be: whatever every reader can read again; the rest is refused before it has a number."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.spool.spools import check_refused, open_spool, replay_sequences

from holdfast.spool import Ticket
from holdfast.spool.files.record import DEPTH_MAX, RECORD_BYTES_MAX, is_too_large


def nested(depth: int, inside: object = "") -> object:
    """Lists in each other, in an object that counts as one."""
    found = inside
    for _ in range(depth - 1):
        found = [found]
    return {"in": found}


@pytest.mark.rule("SP-003", "SP-CRASH-002")
def test_a_payload_nested_deeper_than_readers_can_follow_is_refused_and_takes_no_sequence(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    for depth in (DEPTH_MAX + 1, 950):  # of the second not every reader would have come to the end
        assert "nested deeper than 100" in check_refused(spool.emit("X", nested(depth)), "InvalidParams").message
    for payload in (nested(DEPTH_MAX), {"many": [{"n": [n]} for n in range(1_000)]}, {"text": "[{" * 1_000}):
        assert isinstance(spool.emit("X", payload), Ticket)
    spool.step()
    spool.close()
    again = open_spool(tmp_path)
    assert again.damage == ""
    assert replay_sequences(again) == [1, 2, 3]
    again.close()


@pytest.mark.rule("SP-001", "SP-CRASH-002")
def test_a_payload_that_would_be_two_lines_is_refused(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    no = check_refused(spool.emit("X", msgspec.Raw(b'{\n  "block_id": "b-1"\n}')), "InvalidParams")
    assert "one line" in no.message
    assert isinstance(spool.emit("X", {"text": "two\nlines"}), Ticket)
    assert isinstance(spool.emit("X", msgspec.Raw(b'{"block_id": "b-1"}')), Ticket)
    spool.step()
    assert replay_sequences(spool) == [1, 2]
    spool.close()


@pytest.mark.rule("SEC-001")
def test_each_fault_of_a_payload_has_its_own_sentence(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    faults = {"not JSON": {1: {2j}}, "not a JSON object": [1], "at most": {"large": "x" * RECORD_BYTES_MAX}}
    for says, payload in faults.items():
        assert says in check_refused(spool.emit("X", payload), "InvalidParams").message
    spool.close()


@pytest.mark.parametrize("text", ['"', "\\", '\\"', '"[' * 200, "\\\\", "[{]}" * 200])
def test_brackets_inside_of_texts_do_not_count(text: str) -> None:
    deep = msgspec.json.encode([text, nested(DEPTH_MAX)])
    assert is_too_large(deep)
    assert not is_too_large(msgspec.json.encode({"a": text, "b": nested(DEPTH_MAX - 1), "c": [[1]] * 200}))
