"""What may be in flight, which acks are plausible, and for how long acks do not advance: without clock or network."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.base.errors import Refused
from holdfast.shipping.flow_control import BATCH_BYTES_MAX, SendWindow, open_window
from holdfast.spool import Spool


def make_window(after: int = 10, credit: int = 1_000, sent_before: int = 0) -> SendWindow:
    return SendWindow(after, credit, sent_before, now_ms=0)


@pytest.mark.rule("EVD-001")
@pytest.mark.parametrize(("size", "may"), [(399, True), (400, True), (401, False)])
def test_so_much_may_be_on_its_way_as_there_is_credit_for(size: int, may: bool) -> None:
    window = make_window()
    window.record_sent(12, 600, 0)
    assert window.may_send(size) is may


@pytest.mark.rule("EVD-001")
def test_a_record_larger_than_the_credit_goes_alone_and_none_without_any() -> None:
    assert make_window(credit=1).may_send(5_000)
    assert not make_window(credit=0).may_send(1)
    assert make_window(credit=2 * BATCH_BYTES_MAX).batch_bytes_max == BATCH_BYTES_MAX
    assert make_window(credit=7).batch_bytes_max == 7


@pytest.mark.rule("EVD-001")
def test_an_ack_frees_the_credit_of_what_it_covers_and_no_more() -> None:
    window = make_window()
    window.record_sent(12, 600, 0)
    window.record_sent(14, 400, 0)
    assert window.on_ack(13, 1_000, 0) is None, "the second message is not covered as a whole"
    assert window.may_send(600)
    assert not window.may_send(601)
    assert window.on_ack(14, 1_000, 0) is None
    assert not window.has_in_flight


@pytest.mark.rule("SP-ACK-001")
@pytest.mark.parametrize(("acked", "is_true"), [(11, True), (12, True), (13, False), (2**64 - 1, False)])
def test_an_ack_of_what_was_not_sent_is_refused_and_moves_nothing(acked: int, is_true: bool) -> None:
    window = make_window()
    window.record_sent(12, 600, 0)
    refusal = window.on_ack(acked, 9_999, 0)
    if is_true:
        assert refusal is None
        assert window.acked == acked
        return
    assert isinstance(refusal, Refused)
    assert (refusal.rule, refusal.name) == ("SP-ACK-001", "AckAhead")
    assert window.acked == 10
    assert not window.may_send(9_000), "nor does its credit count"


@pytest.mark.rule("SP-ACK-001")
def test_an_earlier_stream_may_have_sent_more_than_this_one() -> None:
    """What a stream that was cut has brought as far as the node is acked on the next one."""
    window = make_window(after=10, sent_before=20)
    window.record_sent(12, 600, 0)
    assert window.on_ack(20, 1_000, 0) is None
    assert window.skip_if_acked(20)
    assert window.sent == 20
    assert not window.skip_if_acked(21)
    assert isinstance(window.on_ack(21, 1_000, 0), Refused)


@pytest.mark.rule("SP-ACK-003")
def test_an_ack_that_comes_again_or_late_changes_nothing() -> None:
    window = make_window()
    window.record_sent(14, 600, 0)
    for acked in (13, 13, 11, 0):
        assert window.on_ack(acked, 1_000, 5) is None
        assert window.acked == 13


@pytest.mark.rule("EVD-004")
def test_acks_that_only_repeat_stand_still() -> None:
    window = make_window()
    assert window.ack_stall_ms(99_999) == 0, "nothing is on its way"
    window.record_sent(12, 100, 1_000)
    window.on_ack(11, 1_000, 2_000)
    window.on_ack(11, 1_000, 3_000)
    assert window.ack_stall_ms(5_000) == 3_000
    window.on_ack(12, 1_000, 6_000)
    assert window.ack_stall_ms(99_999) == 0
    window.record_sent(13, 100, 50_000)
    assert window.ack_stall_ms(50_001) == 1, "the time before it was sent does not count"


@pytest.mark.rule("SP-ACK-004")
@pytest.mark.parametrize(
    ("receiver_ack", "after"), [(None, 4), (4, 4), (6, 6), (10, 10), (11, "AckAhead"), (2, 2), (0, 0)]
)
def test_the_answer_to_the_hello_says_where_to_go_on(
    tmp_path: Path, receiver_ack: int | None, after: int | str
) -> None:
    spool = Spool.open("c", "s", root=tmp_path)
    assert isinstance(spool, Spool)
    with spool:
        tickets = [spool.emit("BLOCK_START", {"n": n}) for n in range(10)]
        assert not isinstance(tickets[-1], Refused)
        tickets[-1].wait()
        spool.ack(4)
        window = open_window(spool, receiver_ack, 1_000, 0, 0)
        found = window.name if isinstance(window, Refused) else window.sent
        assert found == after
        assert spool.acked_sequence == (max(4, receiver_ack or 0) if found != "AckAhead" else 4)


@pytest.mark.rule("SP-ACK-004")
def test_a_watermark_below_what_is_kept_is_a_gap_with_a_name(tmp_path: Path) -> None:
    spool = Spool.open("c", "s", root=tmp_path)
    assert isinstance(spool, Spool)
    with spool:
        tickets = [spool.emit("BLOCK_START", {"n": n}) for n in range(10)]
        assert not isinstance(tickets[-1], Refused)
        tickets[-1].wait()
        spool.ack(6)
        spool.compact().wait()
        assert spool.first_available == 7
        assert not isinstance(open_window(spool, 6, 1_000, 0, 0), Refused)
        gap = open_window(spool, 5, 1_000, 0, 0)
        assert isinstance(gap, Refused)
        assert (gap.rule, gap.name) == ("SP-ACK-004", "AckGap")
