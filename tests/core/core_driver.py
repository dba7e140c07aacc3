"""The way of a job through core, step by step, for the tests: providers, offers, proofs."""

from __future__ import annotations

from tests.core.blocks import SEAL
from tests.core.commands import DEVELOPMENT, some_id

from holdfast.core import state_machine
from holdfast.core.base.canonical import canonical
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command, Decided, Event
from holdfast.core.base.values import AccountId, Amount, Digest, Kind, ProviderId, TaskId, Tier
from holdfast.core.chain.messages import EvictFinalTxs, SealBlock
from holdfast.core.escrow.messages import Mint
from holdfast.core.lease.messages import AckLease
from holdfast.core.lease.model import Lease
from holdfast.core.match.messages import Match
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.proof.messages import ProofAccepted, RecordVerdict, SubmitCompletion
from holdfast.core.provider.messages import Heartbeat, Register, Stake
from holdfast.core.provider.model import provider_id
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue
from holdfast.core.result import result_digest
from holdfast.core.result.messages import Consume, StoredFacts
from holdfast.core.result.model import Result
from holdfast.core.state import State

ALICE = AccountId("alice")
YEAR_MS = 365 * 24 * 3_600_000
BEGIN_MS = 1_700_000_000_000


def public(number: int) -> bytes:
    return number.to_bytes(32, "big")


class CoreDriver:
    """A state, a clock, and the steps that a job takes."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state or State(DEVELOPMENT)
        self.now_ms = BEGIN_MS
        self.events: list[Event] = []
        self._ids = 0
        self.rows: dict[TaskId, Result] = {}
        """The rows of results, as the projection has them."""

    def ask(self, command: Command) -> tuple[Event, ...] | Refused:
        decided = state_machine.decide(self.state, command, self.now_ms)
        if isinstance(decided, Refused):
            return decided
        assert isinstance(decided, Decided)
        for event in decided.events:
            state_machine.apply(self.state, event)
            self.events.append(event)
            if isinstance(event, ProofAccepted):
                self.rows[event.task_id] = self.state.results[event.task_id]
        return decided.events

    def do(self, command: Command) -> tuple[Event, ...]:
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
        self.do(Heartbeat(id_, slots))
        return id_

    def enqueue(self, nonce: int = 1, max_fee: int = 100, model: str = "echo", prompt: str = "hi") -> TaskId:
        payload = {"kind": "AI", "spec": {"model": model, "prompt": prompt}, "units": 2}
        command = build_enqueue(self.state.policy, ALICE, Tier.FREE, payload, max_fee, nonce)
        assert isinstance(command, Enqueue), command
        self.do(command)
        return list(self.state.queue.jobs)[-1]

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
        self.do(SubmitCompletion(lease.id, lease.provider_id, self.envelope(job, output)))

    def record_verdict(self, job: TaskId, *, is_good: bool = True) -> tuple[Event, ...]:
        return self.do(RecordVerdict(self.lease_of(job).id, is_good, "as the test says"))

    def complete(self, job: TaskId, output: bytes = b"out") -> None:
        self.submit(job, output)
        self.record_verdict(job)

    def consume(self, job: TaskId, tx: int = 1, caller: AccountId = ALICE) -> tuple[Event, ...] | Refused:
        """Use a result; one that has left memory is found as a door finds it, in its rows."""
        row = self.rows.get(job)
        kept = StoredFacts(row.event, row.caller, Kind(row.kind), row.earliest) if row is not None else None
        return self.ask(Consume(job, caller, Digest(some_id(tx)), kept))

    def seal(self, times: int = 1, how: SealBlock = SEAL) -> None:
        """Seal blocks; what became final leaves memory, as beside tables that are up to date."""
        for _ in range(times):
            self.do(how)
            self.ask(EvictFinalTxs(self.state.last_event))


def leased() -> tuple[CoreDriver, TaskId, Lease]:
    """A job that one provider was given."""
    core = CoreDriver()
    core.funded()
    core.provider()
    job = core.enqueue()
    core.match()
    return core, job, core.lease_of(job)
