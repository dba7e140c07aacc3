"""Payloads that the tables do not hold yet: dropped up to a checkpoint, and never more than a bound of bytes."""

from __future__ import annotations

import pytest

from holdfast.core.base.values import EventNo
from holdfast.core.job.model import SpecRow
from holdfast.engine.projection import payload_cache
from holdfast.engine.projection.payload_cache import PayloadCache

pytestmark = pytest.mark.rule("ENG-007")


def _filled(*events: int) -> PayloadCache:
    payloads = PayloadCache()
    for event in events:
        payloads[event] = SpecRow(EventNo(event), b"%03d" % event)
    return payloads


def test_payloads_up_to_the_checkpoint_are_dropped_and_later_ones_stay() -> None:
    payloads = _filled(3, 5, 8)
    payloads.drop_until(EventNo(5))
    assert list(payloads) == [8]
    assert payloads.find(EventNo(8)) == b"008"


def test_the_payload_of_a_purged_job_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_cache, "BYTES_MAX", 6)
    payloads = _filled(1, 2)
    payloads[1] = None
    payloads[3] = SpecRow(EventNo(3), b"003")
    assert list(payloads) == [2, 3]


def test_beyond_the_bound_the_oldest_payload_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_cache, "BYTES_MAX", 6)
    assert list(_filled(1, 2, 3)) == [2, 3]
