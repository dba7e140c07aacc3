"""What may be on its way, which ack can be true, and when acks stand still: decisions without a clock or a wire."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.agent.custody import PIECE_BYTES_MAX, Custody, begun
from holdfast.core.refusal import Refused
from holdfast.spool import Spool


def some(after: int = 10, credit: int = 1_000, before: int = 0) -> Custody:
    return Custody(after, credit, before, now_ms=0)


@pytest.mark.rule("EVD-001")
@pytest.mark.parametrize(("size", "may"), [(399, True), (400, True), (401, False)])
def test_so_much_may_be_on_its_way_as_there_is_credit_for(size: int, may: bool) -> None:
    custody = some()
    custody.send(12, 600, 0)
    assert custody.may_send(size) is may


@pytest.mark.rule("EVD-001")
def test_a_record_larger_than_the_credit_goes_alone_and_none_without_any() -> None:
    assert some(credit=1).may_send(5_000)
    assert not some(credit=0).may_send(1)
    assert some(credit=2 * PIECE_BYTES_MAX).piece_bytes_max == PIECE_BYTES_MAX
    assert some(credit=7).piece_bytes_max == 7


@pytest.mark.rule("EVD-001")
def test_an_ack_gives_the_room_back_of_what_it_covers_and_no_more() -> None:
    custody = some()
    custody.send(12, 600, 0)
    custody.send(14, 400, 0)
    assert custody.hear(13, 1_000, 0) is None, "the second message is not covered as a whole"
    assert custody.may_send(600)
    assert not custody.may_send(601)
    assert custody.hear(14, 1_000, 0) is None
    assert not custody.is_flying


@pytest.mark.rule("SP-ACK-001")
@pytest.mark.parametrize(("acked", "is_true"), [(11, True), (12, True), (13, False), (2**64 - 1, False)])
def test_an_ack_of_what_was_not_sent_is_refused_and_moves_nothing(acked: int, is_true: bool) -> None:
    custody = some()
    custody.send(12, 600, 0)
    no = custody.hear(acked, 9_999, 0)
    if is_true:
        assert no is None
        assert custody.heard == acked
        return
    assert isinstance(no, Refused)
    assert (no.rule, no.name) == ("SP-ACK-001", "AckAhead")
    assert custody.heard == 10
    assert not custody.may_send(9_000), "nor does its credit count"


@pytest.mark.rule("SP-ACK-001")
def test_an_earlier_stream_may_have_sent_more_than_this_one() -> None:
    """What a stream that was cut has brought as far as the node is acked on the next one."""
    custody = some(after=10, before=20)
    custody.send(12, 600, 0)
    assert custody.hear(20, 1_000, 0) is None
    assert custody.passes_over(20)
    assert custody.sent == 20
    assert not custody.passes_over(21)
    assert isinstance(custody.hear(21, 1_000, 0), Refused)


@pytest.mark.rule("SP-ACK-003")
def test_an_ack_that_comes_again_or_late_changes_nothing() -> None:
    custody = some()
    custody.send(14, 600, 0)
    for acked in (13, 13, 11, 0):
        assert custody.hear(acked, 1_000, 5) is None
        assert custody.heard == 13


@pytest.mark.rule("EVD-004")
def test_acks_that_only_repeat_stand_still() -> None:
    custody = some()
    assert custody.still_ms(99_999) == 0, "nothing is on its way"
    custody.send(12, 100, 1_000)
    custody.hear(11, 1_000, 2_000)
    custody.hear(11, 1_000, 3_000)
    assert custody.still_ms(5_000) == 3_000
    custody.hear(12, 1_000, 6_000)
    assert custody.still_ms(99_999) == 0
    custody.send(13, 100, 50_000)
    assert custody.still_ms(50_001) == 1, "the time before it was sent does not count"


@pytest.mark.rule("SP-ACK-004")
@pytest.mark.parametrize(("told", "after"), [(None, 4), (4, 4), (6, 6), (10, 10), (11, "AckAhead"), (2, 2), (0, 0)])
def test_the_answer_to_the_hello_says_where_to_go_on(tmp_path: Path, told: int | None, after: int | str) -> None:
    spool = Spool.open("c", "s", root=tmp_path)
    assert isinstance(spool, Spool)
    with spool:
        tickets = [spool.emit("BLOCK_START", {"n": n}) for n in range(10)]
        assert not isinstance(tickets[-1], Refused)
        tickets[-1].wait()
        spool.ack(4)
        custody = begun(spool, told, 1_000, 0, 0)
        found = custody.name if isinstance(custody, Refused) else custody.sent
        assert found == after
        assert spool.acked_sequence == (max(4, told or 0) if found != "AckAhead" else 4)


@pytest.mark.rule("SP-ACK-004")
def test_a_mark_below_what_is_kept_is_a_gap_with_a_name(tmp_path: Path) -> None:
    spool = Spool.open("c", "s", root=tmp_path)
    assert isinstance(spool, Spool)
    with spool:
        tickets = [spool.emit("BLOCK_START", {"n": n}) for n in range(10)]
        assert not isinstance(tickets[-1], Refused)
        tickets[-1].wait()
        spool.ack(6)
        spool.compact().wait()
        assert spool.first_available == 7
        assert not isinstance(begun(spool, 6, 1_000, 0, 0), Refused)
        gap = begun(spool, 5, 1_000, 0, 0)
        assert isinstance(gap, Refused)
        assert (gap.rule, gap.name) == ("SP-ACK-004", "AckGap")
