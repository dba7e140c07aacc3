"""A job asks for metrics: a good proof that does not keep them is not paid, and no provider is blamed (PRV-005)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.core.core_driver import ALICE, CoreDriver
from tests.core.fleet import fleet

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Event
from holdfast.core.base.values import TaskId, Tier
from holdfast.core.job.model import JobState
from holdfast.core.job.spec import ParsedPayload, read_payload
from holdfast.core.lease.messages import LeaseClosed
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.proof.messages import ProofAccepted, ProofRefused, RecordVerdict, SubmitCompletion
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue
from holdfast.core.result import result_digest

pytestmark = pytest.mark.rule("PRV-005")


def payload(**metrics: Any) -> dict[str, Any]:
    return {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "metrics": metrics}


def delivered(core: CoreDriver, told: dict[str, Any], **bounds: Any) -> tuple[TaskId, tuple[Event, ...]]:
    """A job with these bounds, whose proof has these metrics and is good."""
    command = build_enqueue(core.state.policy, ALICE, Tier.FREE, payload(**bounds), 100, len(core.events))
    assert isinstance(command, Enqueue), command
    core.do(command)
    job = list(core.state.queue.jobs)[-1]
    core.match()
    lease = core.lease_of(job)
    body = body_of(job, lease.id, lease.provider_id, result_digest(b"out"), 3, told)
    core.do(SubmitCompletion(lease.id, lease.provider_id, Envelope(1, "attested", body, b"s" * 64)))
    return job, core.do(RecordVerdict(lease.id, is_good=True))


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"took_ms": 100}, None),
        ({"took_ms": 10}, None),
        ({"took_ms": 101}, "took_ms: 101, not at most 100 and at least 10"),
        ({"took_ms": 9}, "took_ms: 9, not at most 100 and at least 10"),
        ({"took_ms": "50"}, "took_ms: the proof does not have it"),
        ({}, "took_ms: the proof does not have it"),
    ],
)
def test_metrics_are_checked_and_what_is_unmet_is_shown(told: dict[str, Any], says: str | None) -> None:
    core = fleet(1)
    before = msgspec.structs.replace(next(iter(core.state.providers.values())))
    job, events = delivered(core, told, took_ms={"min": 10, "max": 100})
    found = core.state.queue.jobs[job]
    if says is None:
        assert isinstance(events[0], ProofAccepted)
        assert (found.state, found.charged) == (JobState.COMPLETED, 3)
        return
    closed, refused = events
    assert isinstance(closed, LeaseClosed)
    assert isinstance(refused, ProofRefused)
    assert (closed.reason, closed.is_failure, closed.detail) == ("METRICS_UNMET", False, says)
    assert (refused.verdict, refused.reasons) == ("METRICS_UNMET", says)
    assert (found.state, found.failures, found.charged) == (JobState.QUEUED, 0, None)
    after = core.state.providers[before.id]
    lost = ("health_ppm", "stake", "slashed", "failures_in_row", "failed", "status")
    assert [getattr(after, name) for name in lost] == [getattr(before, name) for name in lost]


@pytest.mark.rule("RTY-001")
def test_it_is_tried_again_a_bounded_number_of_times() -> None:
    core = fleet(1)
    job, _ = delivered(core, {}, took_ms={"max": 1})
    for _ in range(core.state.policy.retry.failures_max - 1):
        core.now_ms = core.state.queue.jobs[job].not_before_ms
        core.match()
        lease = core.lease_of(job)
        body = body_of(job, lease.id, lease.provider_id, result_digest(b"out"), 3, {"took_ms": 2})
        core.do(SubmitCompletion(lease.id, lease.provider_id, Envelope(1, "attested", body, b"s" * 64)))
        core.do(RecordVerdict(lease.id, is_good=True))
    assert core.state.queue.jobs[job].state is JobState.FAILED


@pytest.mark.parametrize(
    ("bounds", "path"),
    [
        ({"took_ms": {}}, "payload.metrics.took_ms"),
        ({"took_ms": {"min": 2, "max": 1}}, "payload.metrics.took_ms"),
        ({"took_ms": {"most": 2}}, "payload.metrics"),
        ({"took_ms": {"max": 2**62 + 1}}, "payload.metrics"),
        ({f"m{number}": {"max": 1} for number in range(17)}, "payload.metrics"),
    ],
)
def test_bounds_that_mean_nothing_are_refused_with_their_path(bounds: dict[str, Any], path: str) -> None:
    no = read_payload(payload(**bounds))
    assert isinstance(no, Refused)
    assert no.message.startswith(path)
    assert isinstance(read_payload(payload(took_ms={"max": 1})), ParsedPayload)
