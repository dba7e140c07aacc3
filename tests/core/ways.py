"""The way of a job through core, step by step, for the tests: providers, offers, proofs."""

from __future__ import annotations

from tests.core.blocks import SEAL
from tests.core.books import DEVELOPMENT, some_id

from holdfast.core import law
from holdfast.core.canon import canonical
from holdfast.core.chain.acts import Seal
from holdfast.core.escrow.acts import Mint
from holdfast.core.event import Decided, Event
from holdfast.core.lease.acts import AckLease
from holdfast.core.lease.record import Lease
from holdfast.core.match.decide import Match
from holdfast.core.proof.acts import Judge, ProofAccepted, Submit
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.provider.acts import Beat, Register, Stake
from holdfast.core.provider.record import provider_id
from holdfast.core.queue.acts import Enqueue
from holdfast.core.queue.decide import prepare
from holdfast.core.refusal import Refused
from holdfast.core.result import result_digest
from holdfast.core.result.acts import Consume, Kept
from holdfast.core.result.record import Result
from holdfast.core.state import State
from holdfast.core.values import AccountId, Amount, Digest, Kind, ProviderId, TaskId, Tier

ALICE = AccountId("alice")
YEAR_MS = 365 * 24 * 3_600_000
BEGIN_MS = 1_700_000_000_000


def public(number: int) -> bytes:
    return number.to_bytes(32, "big")


class Way:
    """A state, a clock, and the steps that a job takes."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state or State(DEVELOPMENT)
        self.now_ms = BEGIN_MS
        self.events: list[Event] = []
        self._ids = 0
        self.rows: dict[TaskId, Result] = {}
        """The rows of results, as the projection has them."""

    def ask(self, command: law.Command) -> tuple[Event, ...] | Refused:
        decided = law.decide(self.state, command, self.now_ms)
        if isinstance(decided, Refused):
            return decided
        assert isinstance(decided, Decided)
        for event in decided.events:
            law.apply(self.state, event)
            self.events.append(event)
            if isinstance(event, ProofAccepted):
                self.rows[event.task_id] = self.state.results[event.task_id]
        return decided.events

    def do(self, command: law.Command) -> tuple[Event, ...]:
        outcome = self.ask(command)
        assert not isinstance(outcome, Refused), outcome
        return outcome

    def new_id(self) -> bytes:
        self._ids += 1
        return some_id(1_000_000 + self._ids)

    def funded(self, owner: AccountId = ALICE, amount: int = 1_000_000) -> None:
        self.do(Mint(self.new_id(), owner, Amount(amount)))

    def provider(
        self, number: int = 1, slots: int = 4, price: int = 3, models: tuple[str, ...] = ("echo",)
    ) -> ProviderId:
        """Registered, staked, alive: active."""
        account = AccountId(f"provider-{number}")
        capabilities = canonical({"AI": {"models": list(models)}})
        told = (f"p{number}", account, capabilities, "eu", price, slots, self.now_ms + YEAR_MS)
        self.do(Register(public(number), *told))
        id_ = provider_id(public(number))
        self.funded(account, 20_000)
        self.do(Stake(id_, Amount(10_000), self.new_id()))
        self.do(Beat(id_, slots))
        return id_

    def enqueue(self, nonce: int = 1, max_fee: int = 100, model: str = "echo", prompt: str = "hi") -> TaskId:
        payload = {"kind": "AI", "spec": {"model": model, "prompt": prompt}, "units": 2}
        command = prepare(self.state.policy, ALICE, Tier.FREE, payload, max_fee, nonce)
        assert isinstance(command, Enqueue), command
        self.do(command)
        return next(reversed(self.state.queue.jobs))

    def match(self) -> tuple[Event, ...]:
        return self.do(Match())

    def lease_of(self, job: TaskId) -> Lease:
        return self.state.leases.by_job[job]

    def ack(self, job: TaskId) -> None:
        lease = self.lease_of(job)
        self.do(AckLease(lease.id, lease.provider_id))

    def envelope(self, job: TaskId, output: bytes) -> Envelope:
        lease = self.lease_of(job)
        body = body_of(job, lease.id, lease.provider_id, result_digest(output), len(output), {"ms": 5})
        return Envelope(1, "attested", body, b"s" * 64)

    def submit(self, job: TaskId, output: bytes = b"out") -> None:
        lease = self.lease_of(job)
        self.do(Submit(lease.id, lease.provider_id, self.envelope(job, output)))

    def judge(self, job: TaskId, *, is_good: bool = True) -> tuple[Event, ...]:
        return self.do(Judge(self.lease_of(job).id, is_good, "as the test says"))

    def complete(self, job: TaskId, output: bytes = b"out") -> None:
        self.submit(job, output)
        self.judge(job)

    def consume(self, job: TaskId, tx: int = 1, caller: AccountId = ALICE) -> tuple[Event, ...] | Refused:
        """Use a result; one that has left memory is found as a door finds it, in its rows."""
        row = self.rows.get(job)
        kept = Kept(row.event, row.caller, Kind(row.kind), row.earliest) if row is not None else None
        return self.ask(Consume(job, caller, Digest(some_id(tx)), kept))

    def seal(self, times: int = 1, how: Seal = SEAL) -> None:
        for _ in range(times):
            self.do(how)


def leased() -> tuple[Way, TaskId, Lease]:
    """A job that one provider was given."""
    way = Way()
    way.funded()
    way.provider()
    job = way.enqueue()
    way.match()
    return way, job, way.lease_of(job)
