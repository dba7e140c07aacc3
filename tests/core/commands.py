"""Random histories of money for the tests, and jobs to ask for: mostly sensible, ids and names from small sets."""

from __future__ import annotations

from hypothesis import strategies as st

from holdfast.core import state_machine
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command, Decided, Event
from holdfast.core.base.values import AccountId, Amount, Height, Network, ReservationId, Tier
from holdfast.core.escrow.messages import Charge, Finalize, Mint, Refund, Reserve, RollBackSettlements
from holdfast.core.policy import Policy
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue, JobAdmitted
from holdfast.core.state import State
from holdfast.core.state_digest import digest

DEVELOPMENT = Policy.for_network(Network.DEVELOPMENT)


def some_id(number: int) -> ReservationId:
    return ReservationId(number.to_bytes(32, "big"))


ids = st.integers(0, 11).map(some_id)
owners = st.sampled_from([AccountId(name) for name in ("alice", "bob", "carol")])
amounts = st.integers(0, 60).map(Amount)
heights = st.integers(0, 9).map(Height)
memos = st.sampled_from([b"", b"small", b"x" * 5_000])

commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(Mint, ids, owners, st.integers(0, 200).map(Amount)),
    st.builds(Reserve, ids, owners, amounts, memos),
    st.builds(Reserve, ids, owners, amounts),
    st.builds(Charge, ids, heights, owners, amounts),
    st.builds(Charge, ids, heights, owners, amounts),
    st.builds(Refund, ids, heights),
    st.builds(Finalize, st.integers(0, 4).map(Height)),
    st.builds(RollBackSettlements, heights),
)
histories = st.lists(commands, max_size=60)


def empty() -> State:
    return State(DEVELOPMENT)


def payload(prompt: str = "hello") -> dict[str, object]:
    """A small job for an AI."""
    return {"kind": "AI", "spec": {"model": "m", "prompt": prompt}}


def enqueue_command(
    nonce: int = 1,
    caller: str = "alice",
    max_fee: int = 10,
    idempotency: bytes = b"",
    what: object = None,
    policy: Policy = DEVELOPMENT,
) -> Enqueue:
    """A request that is well made."""
    made = build_enqueue(policy, AccountId(caller), Tier.FREE, what or payload(), max_fee, nonce, idempotency)
    assert isinstance(made, Enqueue), made
    return made


def run(state: State, command: Command, now_ms: int = 0) -> tuple[Event, ...] | Refused:
    """Decide and apply one command."""
    decided = state_machine.decide(state, command, now_ms)
    if isinstance(decided, Refused):
        return decided
    assert isinstance(decided, Decided)
    for event in decided.events:
        state_machine.apply(state, event)
    return decided.events


def done(state: State, command: Command, now_ms: int = 0) -> State:
    """Decide and apply a command that must be accepted."""
    outcome = run(state, command, now_ms)
    assert not isinstance(outcome, Refused), outcome
    return state


def refused(state: State, command: Command, now_ms: int = 0) -> Refused:
    """Decide a command that must be refused, without any effect."""
    before = digest(state)
    outcome = run(state, command, now_ms)
    assert isinstance(outcome, Refused), outcome
    assert digest(state) == before, "a refusal changes nothing"
    return outcome


def funded(amount: int = 1_000, policy: Policy = DEVELOPMENT) -> State:
    """Alice and bob have so much."""
    state = State(policy)
    for number, owner in enumerate(("alice", "bob"), start=90):
        done(state, Mint(some_id(number), AccountId(owner), Amount(amount)))
    return state


def admitted(state: State, command: Command, now_ms: int) -> JobAdmitted:
    """The job that a command which must be accepted brings in."""
    outcome = run(state, command, now_ms)
    assert not isinstance(outcome, Refused), outcome
    assert isinstance(outcome[0], JobAdmitted)
    return outcome[0]
