"""A lease in hand: when it is renewed, and that its first end counts."""

from __future__ import annotations

import pytest

from holdfast.agent.leases.lease_run import LeaseEnd, LeaseRun, LeaseTimes, NodeView
from holdfast.agent.leases.records import AcceptedOffer, Outcome
from holdfast.agent.transport.evidence_emitter import SpooledAt
from holdfast.spool import Ticket
from holdfast.spool.ticket import SequenceProgress

OFFER = AcceptedOffer(bytes(32), bytes(32), "AI", 0, b"", "attested", 600_000)
T_MS = 600_000


def lease_times(now_ms: int, renewals: int = 0) -> LeaseTimes:
    """Of a lease that was given at 0, as LEA-002 and LEA-004 have it; the node's clock is an hour ahead of ours."""
    moved, hour = renewals * T_MS // 2, 3_600_000
    return LeaseTimes(hour + now_ms, hour + T_MS * 6 // 10 + moved, hour + T_MS + moved, renewals)


@pytest.mark.parametrize("now_ms", [0, 1, 300_000])
async def test_a_lease_is_renewed_a_little_before_its_deadline_by_our_own_clock(now_ms: int) -> None:
    held = LeaseRun(OFFER)
    held.schedule_renewal(lease_times(now_ms), 77_000 + now_ms)
    assert held.renew_due_ms == 77_000 + 360_000 - 30_000


async def test_each_renewal_comes_before_the_deadline_that_the_last_one_moved() -> None:
    held = LeaseRun(OFFER)
    held.schedule_renewal(lease_times(0), 0)
    for renewal in range(1, 5):
        due = held.renew_due_ms
        assert due is not None
        assert due < T_MS * 6 // 10 + (renewal - 1) * T_MS // 2, "before renew_by"
        held.on_renewed(renewal, due)
    assert held.renewals == 4


async def test_an_offer_that_is_repeated_says_how_often_it_was_renewed() -> None:
    held = LeaseRun(OFFER)
    held.schedule_renewal(lease_times(400_000, renewals=2), 0)
    assert held.renewals == 2


async def test_the_first_end_counts() -> None:
    held = LeaseRun(OFFER)
    held.end("LOST", "LEASE_EXPIRED")
    held.end("VERDICT")
    assert held.ended.result() == LeaseEnd("LOST", "LEASE_EXPIRED")
    assert not held.is_working
    assert not held.is_unreported


async def test_a_lease_occupies_a_slot_until_its_outcome_is_decided() -> None:
    held = LeaseRun(OFFER)
    assert held.is_working
    held.outcome = Outcome("LEASE_COMPLETED", {})
    assert (held.is_working, held.is_unreported) == (False, True)
    held.outcome_spooled_at = SpooledAt("s", 2)
    assert not held.is_unreported


async def test_a_lease_that_an_earlier_process_reported_only_awaits_its_end() -> None:
    held = LeaseRun.resumed(OFFER, has_files=False)
    held.is_reported, held.outcome_spooled_at = True, SpooledAt("s", 2)
    assert (held.is_working, held.is_unreported, held.is_on_disk) == (False, False, True)


async def test_a_lease_is_on_disk_when_its_record_is_spooled() -> None:
    held, progress = LeaseRun(OFFER), SequenceProgress(4, lambda _: None)
    assert not held.is_on_disk
    held.accepted = Ticket(5, progress)
    assert not held.is_on_disk
    progress.advance(5)
    assert held.is_on_disk
    assert LeaseRun.resumed(OFFER, has_files=True).is_on_disk


async def test_the_nodes_first_view_of_a_lease_counts() -> None:
    held = LeaseRun(OFFER)
    held.on_node_view(NodeView.SUBMITTED)
    held.on_node_view(NodeView.LIVE)
    assert held.node_view.result() is NodeView.SUBMITTED
