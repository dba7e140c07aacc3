"""After any history the index equals one made from nothing, a tick a naive reading, and no needed tick is skipped."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.core.commands import DEVELOPMENT
from tests.core.core_driver import ALICE, YEAR_MS, CoreDriver, public
from tests.core.match import naive_match
from tests.core.match.random_states import random_policy, world_of
from tests.counts import counts

from holdfast.core.base.canonical import canonical
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import AccountId, Amount, Height, Kind, Network, Tier
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.invariants import broken_invariants
from holdfast.core.lease.messages import AckLease, DeclineLease, ExpireDue, FailLease, JobAssigned
from holdfast.core.lease.model import Lease
from holdfast.core.match.decide import can_assign, replay_tick
from holdfast.core.match.input_claims import JudgeInputClaims
from holdfast.core.match.messages import Match
from holdfast.core.match.provider_index import ProviderIndex
from holdfast.core.policy_change.messages import AdoptPolicy
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.provider.messages import ChangeStatus, Drain, Heartbeat, MaintainProviders, Register, Stake
from holdfast.core.provider.messages import SetListing as SetList
from holdfast.core.provider.model import ProviderTransition, provider_id
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import CancelJob, Enqueue, RaiseFee
from holdfast.core.queue.pauses import PauseKind, ResumeKind
from holdfast.core.state import State
from holdfast.engine.snapshots.state_snapshot import restore, snapshot

Step = Callable[[CoreDriver, random.Random], object]
BOB = AccountId("bob")


def random_core(chance: random.Random, order: str) -> CoreDriver:
    core = CoreDriver(State(_policy(chance, order)))
    for owner in (ALICE, BOB):
        core.funded(owner)
    for number in range(1, 4):
        _register(core, number, chance)
    return core


def _policy(chance: random.Random, order: str) -> Any:
    """With small quotas and short epochs, so that they matter."""
    policy = random_policy(chance, order)
    chain = msgspec.structs.replace(DEVELOPMENT.chain, epoch_blocks=chance.choice((2, 5)))
    return msgspec.structs.replace(policy, network=Network.DEVELOPMENT, chain_id=DEVELOPMENT.chain_id, chain=chain)


def _register(core: CoreDriver, number: int, chance: random.Random) -> None:
    can = canonical({"AI": {"models": sorted(chance.sample(("ash", "oak", "elm"), 2))}})
    told = (
        f"p{number}",
        AccountId(f"provider-{number}"),
        can,
        chance.choice(("eu", "us")),
        chance.choice((0, 1, 1, 3, chance.randrange(60))),
        chance.choice((1, 2, 4)),
    )
    prices = canonical({"oak": chance.randrange(30)}) if chance.random() < 0.2 else b""
    attestor = chance.choice(("tpm", "tpm", "self-signed"))
    core.ask(Register(public(number), *told, core.now_ms + YEAR_MS, attestor=attestor, prices=prices))
    id_ = provider_id(public(number))
    core.funded(AccountId(f"provider-{number}"), 20_000)
    core.ask(Stake(id_, Amount(10_000), core.new_id()))
    core.ask(Heartbeat(id_, told[-1]))


def _enqueue(core: CoreDriver, chance: random.Random, count: int = 1) -> None:
    for _ in range(count - 1):
        _enqueue(core, chance)
    spec = {"model": chance.choice(("ash", "oak", "elm", "nobody's")), "prompt": "hi"}
    payload: dict[str, Any] = {"kind": "AI", "spec": spec, "units": chance.choice((1, 1, 2, 3))}
    payload |= {"region": "eu"} if chance.random() < 0.2 else {}
    payload |= {"quorum": {"n": 2, "m": 3}} if chance.random() < 0.1 else {}
    who, tier = chance.choice((ALICE, BOB)), chance.choice(list(Tier))
    command = build_enqueue(core.state.policy, who, tier, payload, chance.randrange(1, 50), len(core.events))
    assert isinstance(command, Enqueue), command
    core.ask(command)


def _some(core: CoreDriver, chance: random.Random) -> Lease | None:
    live = list(core.state.leases.by_id.values())
    return chance.choice(live) if live else None


def _on_lease(make: Callable[[Lease], Any]) -> Step:
    def step(core: CoreDriver, chance: random.Random) -> None:
        if (lease := _some(core, chance)) is not None:
            core.ask(make(lease))

    return step


def _finish(core: CoreDriver, chance: random.Random) -> None:
    lease = _some(core, chance)
    if lease is not None and lease.submitted is None:
        core.ask(SubmitCompletion(lease.id, lease.provider_id, core.envelope(lease.job_id, b"out")))
        core.ask(RecordVerdict(lease.id, is_good=chance.random() < 0.7))


def _wait(core: CoreDriver, chance: random.Random) -> None:
    core.now_ms += chance.choice((1, 250, 1_000, 5_000, 30_000, 60_000, 120_000, 700_000))
    for _ in range(chance.randrange(2)):
        core.ask(ExpireDue())
    if chance.random() < 0.2:
        core.ask(MaintainProviders())
    if chance.random() < 0.7:
        _heartbeat(core, chance)


def _heartbeat(core: CoreDriver, chance: random.Random) -> None:
    for id_ in list(core.state.providers):
        core.ask(Heartbeat(id_, chance.choice((0, 2, 4, 8))))


def _change_status(core: CoreDriver, chance: random.Random) -> None:
    id_ = chance.choice(list(core.state.providers))
    acts = (
        *[ProviderTransition.RECOVER, ProviderTransition.UNJAIL] * 3,
        ProviderTransition.JAIL,
        ProviderTransition.SUSPEND,
    )
    core.ask(ChangeStatus(id_, chance.choice(acts), "the test"))


def _job(core: CoreDriver, chance: random.Random, make: Callable[[Any], Any]) -> None:
    if core.state.queue.jobs:
        core.ask(make(chance.choice(list(core.state.queue.jobs.values()))))


def _adopt(core: CoreDriver, chance: random.Random) -> None:
    core.ask(AdoptPolicy(_policy(chance, chance.choice(("shuffle", "spread", "scored")))))


def _list(core: CoreDriver, chance: random.Random) -> None:
    core.ask(SetList(f"region:{chance.choice(('eu', 'us'))}", chance.choice(("allow", "deny", "", "")), "the test"))


def _restart(core: CoreDriver, _: random.Random) -> None:
    core.state, _tip = restore(snapshot(core.state, JournalHead(last=core.state.last_event)), core.state.policy)


STEPS: list[Step] = [
    *[_enqueue] * 6,
    *[lambda core, _: None] * 2,
    *[lambda core, chance: _enqueue(core, chance, 4)] * 2,
    *[_heartbeat] * 3,
    *[_wait] * 4,
    *[_finish] * 3,
    _on_lease(lambda lease: AckLease(lease.id, lease.provider_id)),
    _on_lease(lambda lease: DeclineLease(lease.id, lease.provider_id)),
    _on_lease(lambda lease: DeclineLease(lease.id, lease.provider_id)),
    _on_lease(lambda lease: FailLease(lease.id, lease.provider_id)),
    *[_on_lease(lambda lease: FailLease(lease.id, lease.provider_id, "INVALID_INPUT: it says"))] * 2,
    lambda core, _: core.ask(JudgeInputClaims()),
    _change_status,
    lambda core, chance: _register(core, chance.randrange(1, 6), chance),
    lambda core, chance: (
        core.ask(Drain(chance.choice(list(core.state.providers)), chance.random() < 0.1, "the test")) and None
    ),
    lambda core, chance: _job(core, chance, lambda job: CancelJob(job.id)),
    lambda core, chance: _job(core, chance, lambda job: RaiseFee(job.id, Amount(job.max_fee + 5))),
    lambda core, chance: core.seal(chance.choice((1, 1, 3))),
    lambda core, chance: core.ask(RollBackBlocks(Height(max(0, core.state.chain.head.height - 1)))),
    lambda core, chance: core.ask(chance.choice((PauseKind(Kind.AI), ResumeKind(Kind.AI), ResumeKind(Kind.AI)))),
    _adopt,
    _list,
    _restart,
]


def index_view(index: ProviderIndex) -> dict[str, object]:
    """What an index says, however it came to say it."""
    return {
        "listed": (index.available_ids, [seat.provider.id for seat in index.available_entries]),
        "free": {rank.profile: set(rank.with_capacity) for rank in index.profile_groups if rank.with_capacity},
        "vacant": {index.profile_groups[at].profile for at in index.groups_with_capacity},
        "seats": {
            id_: (
                seat.is_available,
                seat.has_capacity,
                seat.leases,
                seat.cap,
                seat.due_ms,
                index.profile_groups[seat.group].profile,
            )
            for id_, seat in index.entries.items()
        },
        "due": {id_ for bucket in index.due_index.buckets.values() for id_ in bucket},
    }


def check(core: CoreDriver) -> None:
    state, now_ms = core.state, core.now_ms
    assert broken_invariants(state) == []
    expected = naive_match.match(world_of(state, now_ms))
    is_worth = can_assign(state, now_ms)
    fresh, is_stale = ProviderIndex(), set(state.changed_providers)
    fresh.refresh(state, now_ms)
    state.changed_providers |= is_stale
    assert index_view(state.provider_index) == index_view(fresh)
    again = [(e.job_id, e.provider_id) for e in replay_tick(state, now_ms) if isinstance(e, JobAssigned)]
    assert again == expected
    assert is_worth or not expected, "a tick that was not made would have given something"


@pytest.mark.rule("MAT-002", "MAT-003", "MAT-005", "MAT-006", "MAT-007")
@pytest.mark.parametrize("part", range(6))
def test_whatever_happened_index_tick_and_naive_reading_agree(part: int) -> None:
    chance, total = random.Random(f"history {part}"), 0
    for number in range(counts(25, 750)):
        core = random_core(chance, ("shuffle", "spread", "scored")[number % 3])
        for _ in range(60):
            chance.choice(STEPS)(core, chance)
            if chance.random() < 0.5:
                total += len(core.do(Match()))
            if chance.random() < 0.6:
                check(core)
    assert total > 100, "histories in which nothing is given prove nothing"
