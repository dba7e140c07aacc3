"""Jobs with replicas, for the tests (LEA-009): asked for, leased, answered."""

from __future__ import annotations

from tests.core.core_driver import ALICE, CoreDriver
from tests.core.fleet import completion_envelope

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Event
from holdfast.core.base.values import TaskId, Tier
from holdfast.core.job.model import Job
from holdfast.core.job.quorum import replica_ids
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue, JobAdmitted


def payload(n: int, m: int, **more: object) -> dict[str, object]:
    spec = {"model": "echo", "prompt": "hi"}
    return {"kind": "AI", "spec": spec, "units": 2, "quorum": {"n": n, "m": m}} | more


def enqueue_quorum_job(
    core: CoreDriver, n: int = 2, m: int = 3, max_fee: int = 100, nonce: int = 1, **more: object
) -> TaskId:
    """A job in the queue; its id, not that of a replica."""
    command = build_enqueue(core.state.policy, ALICE, Tier.FREE, payload(n, m, **more), max_fee, nonce)
    assert isinstance(command, Enqueue), command
    return next(event.id for event in core.do(command) if isinstance(event, JobAdmitted))


def replicas(core: CoreDriver, job: TaskId) -> list[Job]:
    found = core.state.queue.jobs[job]
    return [core.state.queue.jobs[id_] for id_ in replica_ids(job, found.quorum_m)]


def submit(core: CoreDriver, replica: TaskId, output: bytes = b"right") -> None:
    lease = core.lease_of(replica)
    core.do(SubmitCompletion(lease.id, lease.provider_id, completion_envelope(core, replica, output)))


def vote(core: CoreDriver, replica: TaskId, output: bytes = b"right") -> tuple[Event, ...]:
    """Its holder hands that in, and it is judged to be properly proved."""
    submit(core, replica, output)
    return core.do(RecordVerdict(core.lease_of(replica).id, is_good=True, reasons="signed"))


def quorum_refusal(core: CoreDriver, n: object, m: object) -> str:
    """What is said to a request with such a quorum."""
    asked_for = {**payload(1, 1), "quorum": {"n": n, "m": m}}
    no = build_enqueue(core.state.policy, ALICE, Tier.FREE, asked_for, 100, 1)
    assert isinstance(no, Refused)
    assert (no.rule, no.name) == ("JOB-003", "InvalidParams")
    return no.message
