"""After any history the index equals one made from nothing, a tick a naive reading, and no needed tick is skipped."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.core import naive_match
from tests.core.books import DEVELOPMENT
from tests.core.ways import ALICE, YEAR_MS, Way, public
from tests.core.worlds import random_policy, world_of
from tests.counts import counts

from holdfast.core.adopt import AdoptPolicy
from holdfast.core.canon import canonical
from holdfast.core.chain.acts import RollBack
from holdfast.core.event import Tip
from holdfast.core.lease.acts import AckLease, DeclineLease, FailLease, JobAssigned, Reap
from holdfast.core.lease.record import Lease
from holdfast.core.match.decide import Match, is_worthwhile, match_again
from holdfast.core.match.supply import Supply
from holdfast.core.proof.acts import Judge, Submit
from holdfast.core.provider.acts import Beat, Drain, MoveProvider, Register, Stake, Tend
from holdfast.core.provider.acts import List as SetList
from holdfast.core.provider.record import ProviderAct, provider_id
from holdfast.core.queue.acts import Cancel, Enqueue, RaiseFee
from holdfast.core.queue.decide import prepare
from holdfast.core.queue.pauses import PauseKind, ResumeKind
from holdfast.core.state import State, restore, snapshot
from holdfast.core.values import AccountId, Amount, Height, Kind, Network, Tier

Step = Callable[[Way, random.Random], object]
BOB = AccountId("bob")


def begun(chance: random.Random, order: str) -> Way:
    way = Way(State(_policy(chance, order)))
    for owner in (ALICE, BOB):
        way.funded(owner)
    for number in range(1, 4):
        _register(way, number, chance)
    return way


def _policy(chance: random.Random, order: str) -> Any:
    """With small quotas and short epochs, so that they matter."""
    policy = random_policy(chance, order)
    chain = msgspec.structs.replace(DEVELOPMENT.chain, epoch_blocks=chance.choice((2, 5)))
    return msgspec.structs.replace(policy, network=Network.DEVELOPMENT, chain_id=DEVELOPMENT.chain_id, chain=chain)


def _register(way: Way, number: int, chance: random.Random) -> None:
    can = canonical({"AI": {"models": sorted(chance.sample(("ash", "oak", "elm"), 2))}})
    told = (
        f"p{number}",
        AccountId(f"provider-{number}"),
        can,
        chance.choice(("eu", "us")),
        1,
        chance.choice((1, 2, 4)),
    )
    way.ask(Register(public(number), *told, way.now_ms + YEAR_MS))
    id_ = provider_id(public(number))
    way.funded(AccountId(f"provider-{number}"), 20_000)
    way.ask(Stake(id_, Amount(10_000), way.new_id()))
    way.ask(Beat(id_, told[-1]))


def _enqueue(way: Way, chance: random.Random, count: int = 1) -> None:
    for _ in range(count - 1):
        _enqueue(way, chance)
    spec = {"model": chance.choice(("ash", "oak", "elm", "nobody's")), "prompt": "hi"}
    payload: dict[str, Any] = {"kind": "AI", "spec": spec, "units": chance.choice((1, 1, 2, 3))}
    payload |= {"region": "eu"} if chance.random() < 0.2 else {}
    payload |= {"quorum": {"n": 2, "m": 3}} if chance.random() < 0.1 else {}
    who, tier = chance.choice((ALICE, BOB)), chance.choice(list(Tier))
    command = prepare(way.state.policy, who, tier, payload, chance.randrange(1, 50), len(way.events))
    assert isinstance(command, Enqueue), command
    way.ask(command)


def _some(way: Way, chance: random.Random) -> Lease | None:
    live = list(way.state.leases.by_id.values())
    return chance.choice(live) if live else None


def _on_lease(make: Callable[[Lease], Any]) -> Step:
    def step(way: Way, chance: random.Random) -> None:
        if (lease := _some(way, chance)) is not None:
            way.ask(make(lease))

    return step


def _finish(way: Way, chance: random.Random) -> None:
    lease = _some(way, chance)
    if lease is not None and lease.submitted is None:
        way.ask(Submit(lease.id, lease.provider_id, way.envelope(lease.job_id, b"out")))
        way.ask(Judge(lease.id, is_good=chance.random() < 0.7))


def _wait(way: Way, chance: random.Random) -> None:
    way.now_ms += chance.choice((1, 250, 1_000, 5_000, 30_000, 60_000, 120_000, 700_000))
    for _ in range(chance.randrange(2)):
        way.ask(Reap())
    if chance.random() < 0.2:
        way.ask(Tend())
    if chance.random() < 0.7:
        _beat(way, chance)


def _beat(way: Way, chance: random.Random) -> None:
    for id_ in list(way.state.providers):
        way.ask(Beat(id_, chance.choice((0, 2, 4, 8))))


def _move(way: Way, chance: random.Random) -> None:
    id_ = chance.choice(list(way.state.providers))
    acts = (*[ProviderAct.RECOVER, ProviderAct.UNJAIL] * 3, ProviderAct.JAIL, ProviderAct.SUSPEND)
    way.ask(MoveProvider(id_, chance.choice(acts), "the test"))


def _job(way: Way, chance: random.Random, make: Callable[[Any], Any]) -> None:
    if way.state.queue.jobs:
        way.ask(make(chance.choice(list(way.state.queue.jobs.values()))))


def _adopt(way: Way, chance: random.Random) -> None:
    way.ask(AdoptPolicy(_policy(chance, chance.choice(("shuffle", "spread", "scored")))))


def _list(way: Way, chance: random.Random) -> None:
    way.ask(SetList(f"region:{chance.choice(('eu', 'us'))}", chance.choice(("allow", "deny", "", "")), "the test"))


def _restart(way: Way, _: random.Random) -> None:
    way.state, _tip = restore(snapshot(way.state, Tip(last=way.state.last_event)), way.state.policy)


STEPS: list[Step] = [
    *[_enqueue] * 6,
    *[lambda way, _: None] * 2,
    *[lambda way, chance: _enqueue(way, chance, 4)] * 2,
    *[_beat] * 3,
    *[_wait] * 4,
    *[_finish] * 3,
    _on_lease(lambda lease: AckLease(lease.id, lease.provider_id)),
    _on_lease(lambda lease: DeclineLease(lease.id, lease.provider_id)),
    _on_lease(lambda lease: DeclineLease(lease.id, lease.provider_id)),
    _on_lease(lambda lease: FailLease(lease.id, lease.provider_id)),
    _move,
    lambda way, chance: _register(way, chance.randrange(1, 6), chance),
    lambda way, chance: (
        way.ask(Drain(chance.choice(list(way.state.providers)), chance.random() < 0.1, "the test")) and None
    ),
    lambda way, chance: _job(way, chance, lambda job: Cancel(job.id)),
    lambda way, chance: _job(way, chance, lambda job: RaiseFee(job.id, Amount(job.max_fee + 5))),
    lambda way, chance: way.seal(chance.choice((1, 1, 3))),
    lambda way, chance: way.ask(RollBack(Height(max(0, way.state.chain.head.height - 1)))),
    lambda way, chance: way.ask(chance.choice((PauseKind(Kind.AI), ResumeKind(Kind.AI), ResumeKind(Kind.AI)))),
    _adopt,
    _list,
    _restart,
]


def told(supply: Supply) -> dict[str, object]:
    """What an index says, however it came to say it."""
    return {
        "listed": (supply.listed, [seat.provider.id for seat in supply.listed_seats]),
        "free": {rank.profile: set(rank.free) for rank in supply.ranks if rank.free},
        "vacant": {supply.ranks[at].profile for at in supply.vacant},
        "seats": {
            id_: (seat.is_listed, seat.is_free, seat.leases, seat.cap, seat.due_ms, supply.ranks[seat.rank].profile)
            for id_, seat in supply.seats.items()
        },
        "due": {id_ for bucket in supply.agenda.buckets.values() for id_ in bucket},
    }


def check(way: Way) -> None:
    state, now_ms = way.state, way.now_ms
    expected = naive_match.match(world_of(state, now_ms))
    is_worth = is_worthwhile(state, now_ms)
    fresh, is_stale = Supply(), set(state.stale)
    fresh.refresh(state, now_ms)
    state.stale |= is_stale
    assert told(state.supply) == told(fresh)
    again = [(e.job_id, e.provider_id) for e in match_again(state, now_ms) if isinstance(e, JobAssigned)]
    assert again == expected
    assert is_worth or not expected, "a tick that was not made would have given something"


@pytest.mark.rule("MAT-002", "MAT-003", "MAT-005", "MAT-006", "MAT-007")
@pytest.mark.parametrize("part", range(6))
def test_whatever_happened_index_tick_and_naive_reading_agree(part: int) -> None:
    chance, total = random.Random(f"history {part}"), 0
    for number in range(counts(25, 750)):
        way = begun(chance, ("shuffle", "spread", "scored")[number % 3])
        for _ in range(60):
            chance.choice(STEPS)(way, chance)
            if chance.random() < 0.5:
                total += len(way.do(Match()))
            if chance.random() < 0.6:
                check(way)
    assert total > 100, "histories in which nothing is given prove nothing"
