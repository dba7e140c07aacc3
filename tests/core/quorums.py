"""Jobs with replicas, for the tests (LEA-009): asked for, leased, answered."""

from __future__ import annotations

from tests.core.fleet import sent
from tests.core.ways import ALICE, Way

from holdfast.core.event import Event
from holdfast.core.job.quorum import replica_ids
from holdfast.core.job.record import Job
from holdfast.core.proof.acts import Judge, Submit
from holdfast.core.queue.acts import Enqueue
from holdfast.core.queue.decide import prepare
from holdfast.core.refusal import Refused
from holdfast.core.values import TaskId, Tier


def payload(n: int, m: int, **more: object) -> dict[str, object]:
    spec = {"model": "echo", "prompt": "hi"}
    return {"kind": "AI", "spec": spec, "units": 2, "quorum": {"n": n, "m": m}} | more


def asked(way: Way, n: int = 2, m: int = 3, max_fee: int = 100, nonce: int = 1, **more: object) -> TaskId:
    """A job in the queue; its id, not that of a replica."""
    command = prepare(way.state.policy, ALICE, Tier.FREE, payload(n, m, **more), max_fee, nonce)
    assert isinstance(command, Enqueue), command
    way.do(command)
    return next(job.id for job in reversed(way.state.queue.jobs.values()) if not job.parent)


def replicas(way: Way, job: TaskId) -> list[Job]:
    found = way.state.queue.jobs[job]
    return [way.state.queue.jobs[id_] for id_ in replica_ids(job, found.quorum_m)]


def hand_in(way: Way, replica: TaskId, output: bytes = b"right") -> None:
    lease = way.lease_of(replica)
    way.do(Submit(lease.id, lease.provider_id, sent(way, replica, output)))


def vote(way: Way, replica: TaskId, output: bytes = b"right") -> tuple[Event, ...]:
    """Its holder hands that in, and it is judged to be properly proved."""
    hand_in(way, replica, output)
    return way.do(Judge(way.lease_of(replica).id, is_good=True, reasons="signed"))


def refused(way: Way, n: object, m: object) -> str:
    """What is said to a request with such a quorum."""
    asked_for = {**payload(1, 1), "quorum": {"n": n, "m": m}}
    no = prepare(way.state.policy, ALICE, Tier.FREE, asked_for, 100, 1)
    assert isinstance(no, Refused)
    assert (no.rule, no.name) == ("JOB-003", "InvalidParams")
    return no.says
