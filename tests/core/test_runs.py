"""Commands decided and applied by the run: however a sequence is cut, all that follows from it is the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from tests.core.blocks import SEAL
from tests.core.commands import DEVELOPMENT
from tests.core.core_driver import CoreDriver
from tests.core.fleet import join_provider
from tests.counts import counts

from holdfast.core import journal_codec, state_machine
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command, Decided, Event, JournalHead, NeedsClaims, head_of
from holdfast.core.base.privileged import PrivilegedCommand
from holdfast.core.base.values import AccountId, Term, Tier
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.invariants import broken_invariants
from holdfast.core.lease.messages import AckLease, ExpireDue, FailLease
from holdfast.core.lease.model import Lease
from holdfast.core.match.messages import Match
from holdfast.core.policy import (
    AdmissionPolicy,
    ChainPolicy,
    LeasePolicy,
    MatchPolicy,
    Policy,
    ProviderPolicy,
    QuotaPolicy,
    RetryPolicy,
)
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.proof.nullifier_link import PROOF_TYPES
from holdfast.core.provider.messages import Heartbeat
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue
from holdfast.core.result import result_digest
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.metrics.event_metrics import EventMetrics

SCARCE = msgspec.structs.replace(
    DEVELOPMENT,
    admission=AdmissionPolicy(queue_depth_max=16, in_flight_per_requester_max=9, back_pressure_ppm=500_000),
    chain=ChainPolicy(finality_depth=3, epoch_blocks=2),
    quota=QuotaPolicy(leases_per_provider_max=6, ai_units_per_epoch=20),
    lease=LeasePolicy(ack_timeout_ms=5_000),
    match=MatchPolicy(batch_jobs_max=7, interleave_every=3),
    provider=ProviderPolicy(stake_ai_min=100, stake_quantum_min=100, heartbeat_stale_ms=10**9, failures_in_row_max=50),
    retry=RetryPolicy(failures_max=2),
)
"""Queue, money, quota and slots end within a run."""
CALLERS = {AccountId("alice"): 700, AccountId("bob"): 90, AccountId("carol"): 0}
PROVIDERS = 3


class _World:
    """A state that commands are put to, cut in some way; its journal is kept."""

    def __init__(self, policy: Policy = SCARCE) -> None:
        core = CoreDriver(State(policy, observer=EventMetrics()))
        for caller, money in CALLERS.items():
            if money:
                core.funded(caller, money)
        self.providers = [join_provider(core, number + 1, slots=6) for number in range(PROVIDERS)]
        self.state, self.now_ms = core.state, core.now_ms
        self.events: list[Event] = list(core.events)

    def put(self, commands: Sequence[Command], cuts: Sequence[int]) -> list[object]:
        """The answers, with the commands cut into runs of these lengths."""
        answers: list[object] = []
        at = 0
        for length in [*cuts, len(commands)]:
            run = commands[at : at + length]
            at += len(run)
            while run:
                decided = state_machine.decide_run(self.state, run, self.now_ms)
                assert 1 <= len(decided) <= len(run)
                answers += self._apply(decided)
                run = run[len(decided) :]
        return answers

    def _apply(self, decided: Sequence[Decided | Refused | NeedsClaims]) -> list[object]:
        events: list[Event] = []
        answers: list[object] = []
        for answer in decided:
            assert not isinstance(answer, NeedsClaims)
            if isinstance(answer, Decided) and answer.repeat_of is None:
                answers.append((self.state.last_event + 1 + len(events) + answer.answer_index, answer.events))
                events += answer.events
            else:
                answers.append(answer)
        state_machine.apply_all(self.state, events)
        self.events += events
        return answers

    def leases(self, picks: Sequence[int]) -> list[Lease]:
        live = list(self.state.leases.by_id.values())
        return [live[pick % len(live)] for pick in picks] if live else []


def _everything(state: State) -> dict[str, Any]:
    """What must be equal: the digest, and the indexes, marks and metrics that are not part of it."""
    ready = state.queue.ready_queue
    return {
        "digest": digest(state).hex(),
        "ready": {tuple(shape): (list(group.by_priority), list(group.by_age)) for shape, group in ready.groups.items()},
        "waiting": ready.waiting,
        "version": ready.version,
        "counters": (state.queue.depth, state.queue.in_flight, state.assignments),
        "due": [
            {number: list(bucket) for number, bucket in index.buckets.items()}
            for index in (
                state.queue.expiry_times,
                state.queue.expiry_heights,
                ready.delayed,
                state.leases.due_index,
            )
        ],
        "touched": state.touched,
        "claims": list(state.claims.recent.items()),
        "by_provider": {id_: list(leases) for id_, leases in state.leases.by_provider.items()},
        "changed": state.changed_providers,
        "metrics": (state.observer, state.result_counts),
        "recent": list(state.recent_digests.newer.items()),
    }


def _enqueue(nonce: int, caller: int, fee: int, units: int, key: int, replicas: int) -> Enqueue:
    payload: dict[str, object] = {"kind": "AI", "spec": {"model": "echo", "prompt": f"p{nonce % 2}"}, "units": units}
    if replicas:
        payload["quorum"] = {"n": 2, "m": replicas}
    idempotency = bytes([key]) * 16 if key else b""
    command = build_enqueue(SCARCE, list(CALLERS)[caller], Tier.FREE, payload, fee, nonce, idempotency)
    assert isinstance(command, Enqueue), command
    return command


def _submission(state: State, lease: Lease, output: int, *, is_forged: bool) -> SubmitCompletion:
    job = state.queue.jobs[lease.job_id]
    raw = bytes([output])
    body = body_of(job.id, lease.id, lease.provider_id, result_digest(raw), len(raw), {"ms": 5})
    method = "unknown" if is_forged else job.proof
    return SubmitCompletion(lease.id, lease.provider_id, Envelope(PROOF_TYPES[job.kind], method, body, bytes(64)))


picks = st.lists(st.integers(0, 20), max_size=12)
cuts = st.lists(st.integers(1, 6), max_size=8)
jobs = st.builds(
    _enqueue,
    nonce=st.integers(0, 40),
    caller=st.sampled_from([0, 0, 0, 0, 1, 2]),
    fee=st.sampled_from([1, 20, 45, 90]),
    units=st.integers(1, 4),
    key=st.sampled_from([0, 0, 0, 0, 1, 2]),
    replicas=st.sampled_from([0, 0, 0, 0, 0, 3]),
)
stages = st.one_of(
    st.tuples(st.just("enqueue"), st.lists(jobs, max_size=14)),
    st.tuples(st.just("enqueue"), st.lists(jobs, min_size=6, max_size=20)),
    st.tuples(st.just("enqueue for others"), st.lists(jobs, max_size=14)),
    st.tuples(st.just("match"), st.integers(1, 3)),
    st.tuples(st.just("match"), st.integers(1, 3)),
    st.tuples(st.just("ack"), st.tuples(picks, st.integers(0, 20))),
    st.tuples(st.just("submit"), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 9)), min_size=3, max_size=12)),
    st.tuples(st.just("judge"), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 6)), min_size=3, max_size=12)),
    st.tuples(st.just("life"), st.integers(1, 12)),
    st.tuples(st.just("fail"), picks),
    st.tuples(st.just("seal"), st.integers(1, 2)),
    st.tuples(st.just("roll back"), st.integers(0, 2)),
    st.tuples(st.just("wait"), st.sampled_from([1, 900, 5_000, 700_000])),
)


Story = list[tuple[tuple[str, Any], list[int]]]
TWICE_IN_A_RUN: Story = [
    (("enqueue", [_enqueue(nonce, 0, 20, 1, 0, 0) for nonce in range(4)]), []),
    (("match", 1), []),
    (("ack", ([0, 1, 0], 0)), []),
    (("submit", [(0, 0), (1, 0), (0, 0), (0, 5)]), []),
    (("judge", [(0, 0), (1, 0), (0, 0)]), []),
]
"""A lease is acknowledged, submitted and judged twice in one run."""
REPEATED_FOR_OTHERS: Story = [
    (
        (
            "enqueue for others",
            [_enqueue(nonce, 0, 20, 1, 0, replicas) for nonce, replicas in ((1, 0), (2, 3), (3, 0))] * 2,
        ),
        [],
    ),
    (("enqueue for others", [_enqueue(nonce, 0, 20, 1, 0, 0) for nonce in (4, 1, 4)]), []),
]
"""An operator's requests come twice in one run; the second is answered with the number of the first one's event."""
HEALTHY_AGAIN: Story = [
    (("enqueue", [_enqueue(nonce, 0, 20, 1, 0, 0) for nonce in range(3)]), []),
    (("match", 1), []),
    (("ack", ([0, 1], 0)), []),
    (("wait", 5_000), []),
    (("life", 3), []),
]
"""A provider was late once, and the first of two proofs of a run gives back all the health that it lost."""


def _commands(world: _World, name: str, told: Any) -> list[list[Command]]:
    """The runs that a stage asks for, as they follow from the state."""
    state = world.state
    if name == "enqueue":
        return [list(told)]
    if name == "enqueue for others":
        beat = Heartbeat(world.providers[0], 6)
        return [[PrivilegedCommand("local", "cap.enqueue", each) for each in (*told[:3], beat, *told[3:])]]
    if name == "match":
        beats: list[Command] = [Heartbeat(id_, 6) for id_ in world.providers]
        return [beats, [Match() for _ in range(told)]]
    if name == "ack":
        acks = [AckLease(lease.id, lease.provider_id) for lease in world.leases(told[0])]
        return [[*acks, *(AckLease(lease.id, world.providers[0]) for lease in world.leases([told[1]]))]]
    if name == "submit":
        outputs = [how // 5 for _, how in told]
        found = zip(world.leases([pick for pick, _ in told]), outputs, told, strict=False)
        return [[_submission(state, lease, output, is_forged=how == 9) for lease, output, (_, how) in found]]
    if name == "judge":
        found_ = zip(world.leases([pick for pick, _ in told]), told, strict=False)
        return [[RecordVerdict(lease.id, how != 6, "seen") for lease, (_, how) in found_]]
    if name == "fail":
        return [[FailLease(lease.id, lease.provider_id) for lease in world.leases(told)]]
    if name == "seal":
        return [[SEAL] * told]
    if name == "roll back":
        return [[RollBackBlocks(max(0, state.chain.head.height - told))]]
    if name == "wait":
        return [[ExpireDue(limit=3)]]
    live = list(state.leases.by_id.values())[:told]
    submissions: list[Command] = [_submission(state, lease, 0, is_forged=False) for lease in live]
    return [submissions, [RecordVerdict(lease.id, is_good=True) for lease in live]]


@pytest.mark.rule("ENG-001", "ENG-003", "JOB-002", "JOB-005", "ESC-001", "QUO-001", "RCV-001", "PRF-003")
@settings(max_examples=counts(150, 3_000), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.lists(st.tuples(stages, cuts), min_size=4, max_size=24), st.lists(st.integers(1, 40), max_size=20))
@example(story=TWICE_IN_A_RUN, batch_sizes=[])
@example(story=REPEATED_FOR_OTHERS, batch_sizes=[])
@example(story=HEALTHY_AGAIN, batch_sizes=[])
def test_any_cutting_into_runs_gives_the_same_answers_events_and_state(story: Story, batch_sizes: list[int]) -> None:
    singly, in_runs = _World(), _World()
    for (name, told), lengths in story:
        for world in (singly, in_runs):
            world.now_ms += told if name == "wait" else 0
        for commands in _commands(singly, name, told):
            assert singly.put(commands, [1] * len(commands)) == in_runs.put(commands, lengths)
            assert _everything(singly.state) == _everything(in_runs.state)
    assert singly.events == in_runs.events
    assert broken_invariants(in_runs.state) == []
    alone = _applied_singly(in_runs.events)  # decisions refresh indexes: without them only facts and marks are compared
    assert (digest(alone), alone.touched, alone.claims.recent) == (
        digest(in_runs.state),
        in_runs.state.touched,
        in_runs.state.claims.recent,
    )
    assert digest(_folded(in_runs.events, batch_sizes)) == digest(singly.state)


def _applied_singly(events: Sequence[Event]) -> State:
    state = State(SCARCE, observer=EventMetrics())
    for event in events:
        state_machine.apply(state, event)
    return state


def _folded(events: Sequence[Event], batch_sizes: Sequence[int]) -> State:
    """ENG-003: however events are cut into batches, which are applied by the run."""
    state, head, at = State(SCARCE, observer=EventMetrics()), JournalHead(), 0
    for size in [*batch_sizes, len(events)]:
        if some := list(events[at : at + size]):
            batch = journal_codec.pack(head, Term(1), some, 1)
            head = journal_codec.fold(state, head, [batch])
            assert head == head_of(batch)
            at += len(some)
    return state
