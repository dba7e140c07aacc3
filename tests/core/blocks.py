"""Sealing for the tests, and random lives of a chain beside a naive one: blocks as lists, hashed with hashlib alone."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha512
from typing import Any, NamedTuple

import msgspec
from hypothesis import strategies as st
from tests.core import naive
from tests.core.commands import DEVELOPMENT, done, enqueue_command, some_id

from holdfast.core import state_machine
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command, Event
from holdfast.core.base.values import AccountId, Amount, ChainId, Height, TaskId
from holdfast.core.chain.header import SignedHeader
from holdfast.core.chain.messages import BlockSealed, EvictFinalTxs, RollBackBlocks, SealBlock
from holdfast.core.chain.model import signed_of
from holdfast.core.escrow import invariants as escrow_invariants
from holdfast.core.escrow import messages as money
from holdfast.core.policy import ChainPolicy, Policy
from holdfast.core.queue import invariants as queue_invariants
from holdfast.core.queue.messages import CancelJob, JobAdmitted, JobCancelled, RaiseFee
from holdfast.core.state import State

PROPOSER = bytes(range(32))
START_MS = 1_000_000


def sign(message: bytes) -> bytes:
    return sha512(b"signed" + message).digest()


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    return public == PROPOSER and signature == sign(message)


SEAL = SealBlock(PROPOSER, sign)


def final_after(depth: int) -> Policy:
    """A development network whose blocks are final under so many others."""
    return msgspec.structs.replace(DEVELOPMENT, chain=ChainPolicy(finality_depth=depth))


def rich(depth: int = 5) -> State:
    """Alice has 100."""
    return done(State(final_after(depth)), money.Mint(some_id(99), AccountId("alice"), Amount(100)))


def job_of(state: State) -> TaskId:
    """The job that came last."""
    return list(state.queue.jobs)[-1]


def sealed(state: State, now_ms: int = START_MS) -> SignedHeader:
    """The open block, closed; what became final leaves memory, as beside tables that are up to date."""
    done(state, SEAL, now_ms)
    header = signed_head(state)
    done(state, EvictFinalTxs(state.last_event), now_ms)
    return header


def signed_head(state: State) -> SignedHeader:
    return signed_of(state.chain.head, ChainId(state.policy.chain_id))


def changed(value: object) -> object:
    """Another value of the same kind."""
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:]
    assert isinstance(value, int)
    return value + 1


# ------------------------------------------------------------------------------------------------ a naive chain


class NaiveTx(NamedTuple):
    """What a light client is told of a transaction."""

    number: int
    kind: str
    subject: bytes
    about: bytes

    def leaf(self) -> bytes:
        return naive.cbor([self.kind, self.number, self.subject, self.about])


class NaiveBlock(NamedTuple):
    """A block and all that is in it."""

    hash: bytes
    signature: bytes
    last_event: int
    header: list[Any]
    txs: list[NaiveTx]


class NaiveChain:
    """The rules of the chain written down a second time, from the specification."""

    def __init__(self, chain_id: int) -> None:
        genesis = naive.h("holdfast.genesis.v1", chain_id)
        self.chain_id = chain_id
        self.blocks = [NaiveBlock(genesis, genesis, 0, [], [])]
        self.open: list[NaiveTx] = []

    def header(self, last_event: int, time_ms: int) -> list[Any]:
        parent, leaves = self.blocks[-1], [tx.leaf() for tx in self.open]
        nothing = [0, naive.merkle_root([])]
        begin = [self.chain_id, len(self.blocks), parent.hash, time_ms, PROPOSER]
        beacon = naive.h("holdfast.beacon.v1", parent.signature)
        covers = [beacon, parent.last_event + 1, last_event]
        return [*begin, *covers, len(leaves), naive.merkle_root(leaves), *nothing, *nothing, *nothing]

    def seal(self, last_event: int, time_ms: int) -> NaiveBlock:
        header = self.header(last_event, time_ms)
        name = naive.h("holdfast.block.v1", naive.cbor(header))
        self.blocks.append(NaiveBlock(name, sign(name), last_event, header, self.open))
        self.open = []
        return self.blocks[-1]

    def roll_back(self, height: int) -> None:
        gone = [tx for block in self.blocks[height + 1 :] for tx in block.txs]
        del self.blocks[height + 1 :]
        self.open = sorted(gone + self.open)

    def on_event(self, number: int, event: Event) -> None:
        """What an event means to this chain; taking blocks back is told apart (`roll_back`)."""
        match event:
            case JobAdmitted():
                self.open.append(NaiveTx(number, "admission", event.id, event.request_hash))
            case JobCancelled():
                self.open.append(NaiveTx(number, "cancellation", event.id, event.reason.encode()))
            case BlockSealed():
                assert self.seal(number - 1, event.time_ms).hash == event.hash


# ------------------------------------------------------------------------------------------------ lives


class Step(NamedTuple):
    """One thing that happens: what, and numbers that choose among what is there."""

    what: str
    n: int = 0
    m: int = 0


steps = st.one_of(
    st.builds(Step, st.just("enqueue"), st.integers(0, 9), st.integers(0, 40)),
    st.builds(Step, st.just("enqueue"), st.integers(0, 9), st.integers(0, 40)),
    st.builds(Step, st.just("cancel"), st.integers(0, 9)),
    st.builds(Step, st.just("raise"), st.integers(0, 9), st.integers(0, 20)),
    st.builds(Step, st.just("mint"), st.integers(0, 9), st.integers(1, 90)),
    st.builds(Step, st.just("reserve"), st.integers(0, 5), st.integers(1, 20)),
    st.builds(Step, st.just("refund"), st.integers(0, 5)),
    st.builds(Step, st.just("seal"), st.integers(0, 2_000)),
    st.builds(Step, st.just("seal"), st.integers(0, 2_000)),
    st.builds(Step, st.just("back"), st.integers(0, 7)),
)
step_sequences = st.lists(steps, min_size=12, max_size=60)
OWNERS = ("alice", "bob")


class ChainRun:
    """A state that is lived in, the naive chain beside it, and everything that happened."""

    def __init__(self, policy: Policy) -> None:
        self.state, self.naive = State(policy), NaiveChain(policy.chain_id)
        self.now_ms, self.number = START_MS, 0
        self.events: list[Event] = []
        self.jobs: list[TaskId] = []
        self.final: list[int] = []
        """Transactions of blocks that memory has let go."""
        for n, owner in enumerate(OWNERS):
            self.do(money.Mint(some_id(900 + n), AccountId(owner), Amount(100)))

    def do(self, command: Command) -> tuple[Event, ...] | Refused:
        decided = state_machine.decide(self.state, command, self.now_ms)
        if isinstance(decided, Refused):
            return decided
        for event in decided.events:
            self._apply(event)
        if isinstance(command, RollBackBlocks) and decided.events:
            self.naive.roll_back(command.height)
        return decided.events

    def _apply(self, event: Event) -> None:
        recent = dict(self.state.chain.unfinalized)
        if isinstance(event, BlockSealed):
            self.naive.on_event(self.number + 1, event)
        state_machine.apply(self.state, event)
        self.number += 1
        self.events.append(event)
        if not isinstance(event, BlockSealed):
            self.naive.on_event(self.number, event)
        if isinstance(event, JobAdmitted):
            self.jobs.append(event.id)
        if isinstance(event, money.Finalized):
            final = [recent[height] for height in recent if height <= event.height]
            self.final += [number for block in final for number in self._txs_of(block.block.height)]
        assert escrow_invariants.broken_invariants(self.state.ledger) == []
        assert queue_invariants.broken_invariants(self.state.queue, self.state.ledger) == []

    def _txs_of(self, height: int) -> list[int]:
        return [tx.number for tx in self.naive.blocks[height].txs]

    def run_step(self, step: Step) -> tuple[Event, ...] | Refused:
        command = self.command(step)
        if step.what == "seal":
            self.now_ms += step.n
        return () if command is None else self.do(command)

    def command(self, step: Step) -> Command | None:
        """The command that a step is, here and now."""
        state, n = self.state, step.n
        owner = OWNERS[n % len(OWNERS)]
        match step.what:
            case "enqueue":
                key = bytes([n % 4]) if step.m % 3 == 0 else b""
                return enqueue_command(n, owner, max(1, step.m), key, policy=state.policy)
            case "cancel":
                return CancelJob(self.jobs[n % len(self.jobs)]) if self.jobs else None
            case "raise":
                job = state.queue.jobs.get(self.jobs[n % len(self.jobs)]) if self.jobs else None
                return RaiseFee(job.id, Amount(job.max_fee + step.m)) if job else None
            case "mint":
                return money.Mint(some_id(n), AccountId(owner), Amount(step.m))
            case "reserve":
                return money.Reserve(some_id(500 + n), AccountId(owner), Amount(step.m))
            case "refund":
                return money.Refund(some_id(500 + n), Height(0))
            case "seal":
                return SEAL
        return RollBackBlocks(Height(max(0, state.chain.head.height - n)))

    def active(self) -> list[int]:
        """The transactions of the active chain as the state itself has them, lowest block first, the open one last."""
        chain = self.state.chain
        kept = [tx.number for recent in chain.unfinalized.values() for tx in recent.txs]
        return [*self.final, *kept, *(tx.number for tx in chain.open.txs)]

    def transactions(self) -> list[int]:
        """The events that are transactions, as they happened."""
        kinds = JobAdmitted | JobCancelled
        return [number for number, event in enumerate(self.events, start=1) if isinstance(event, kinds)]


def run_steps(policy: Policy, history: Sequence[Step]) -> ChainRun:
    life = ChainRun(policy)
    for step in history:
        life.run_step(step)
    return life
