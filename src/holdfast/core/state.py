"""All that lives, in memory: the parts of every station, its digest and its snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha3_256
from typing import Any, Final

import msgspec

from holdfast.core.adopt import adopted_policy
from holdfast.core.canon import H
from holdfast.core.chain.blocks import Block, Chain, Tx, begun
from holdfast.core.claim import Claims
from holdfast.core.escrow.books import Account, Hold, Ledger
from holdfast.core.event import OwnershipTaken, Tip
from holdfast.core.evidence import letters as letters_of
from holdfast.core.evidence import marks as marks_of
from holdfast.core.evidence.letters import DeadLetter
from holdfast.core.evidence.marks import Begun, Evidence, Mark
from holdfast.core.job.quorum import Quorum
from holdfast.core.job.record import FailedJob, Job, Spec
from holdfast.core.key import Key
from holdfast.core.lease.record import Lease, Leases, collected
from holdfast.core.match.fairness import Window
from holdfast.core.match.supply import Supply
from holdfast.core.policy import Policy
from holdfast.core.proof.acts import Verdict
from holdfast.core.provider.apply import looked_after
from holdfast.core.provider.record import Provider
from holdfast.core.provider.ward import Ward
from holdfast.core.queue.books import Queue, Remembered, counted
from holdfast.core.queue.pauses import Paused
from holdfast.core.quota import Quota
from holdfast.core.refusal import Corrupt
from holdfast.core.result.record import Consumption, Leaf, Result
from holdfast.core.retention.books import Progress, Tombstone
from holdfast.core.retention.books import Recent as Newest
from holdfast.core.tally import Tally
from holdfast.core.touch import Touched
from holdfast.core.values import AccountId, ChainId, Digest, EventNo, Height, HoldId, KeyId, LeaseId, ProviderId, TaskId

SNAPSHOT_TAG: Final = "holdfast.snapshot.v1"
MAGIC: Final = b"holdfast snapshot 1\n"
TABLES: Final[dict[str, type[msgspec.Struct]]] = {
    "account": Account,
    "hold": Hold,
    "key": Key,
    "block": Block,
    "job": Job,
    "spec": Spec,
    "provider": Provider,
    "lease": Lease,
    "result": Result,
    "consumption": Consumption,
    "verdict": Verdict,
    "leaf": Leaf,
    "tombstone": Tombstone,
    "mark": Mark,
    "evidence": Evidence,
    "dead_letter": DeadLetter,
    "provider_quota": Quota,
    "failed_job": FailedJob,
}
"""The tables of the projection, each with the record that is its row; the record's first field is the table's key."""
_pack = msgspec.msgpack.Encoder().encode

FOUNDED: Final[dict[type[msgspec.Struct], int]] = {Job: 28, Provider: 21, Lease: 21, Result: 16, Mark: 5}
"""How many fields a record had when it was first digested. Later ones (CAN-005) count once they say something."""


class Part(msgspec.Struct, frozen=True):
    """A part of the state that came later: one line here and it is digested, kept in snapshots and restored."""

    name: str
    """Both the attribute of `State` and the name under which it is stored."""
    type: Any
    """What msgspec reads it as: a mapping, so that an unused one is empty and adds nothing."""


PARTS: Final[tuple[Part, ...]] = (
    Part("consumptions", dict[TaskId, Consumption]),
    Part("settling", dict[Height, list[Tx]]),
    Part("quotas", dict[ProviderId, Quota]),
    Part("denials", dict[bytes, int]),
    Part("paused", dict[str, Paused]),
    Part("requeued", dict[TaskId, list[EventNo]]),
    Part("adopted", dict[int, bytes]),
    Part("letters", dict[EventNo, DeadLetter]),
    Part("windows", dict[AccountId, Window]),
    Part("listings", dict[str, str]),
    Part("forgiven", dict[int, int]),
    Part("owners", dict[str, str]),
    Part("passes", dict[str, Progress]),
    Part("kept_hot", dict[EventNo, str]),
    Part("kept_warm", dict[EventNo, str]),
    Part("leaving", dict[EventNo, EventNo]),
    Part("condemned", dict[Digest, EventNo]),
    Part("quorums", dict[TaskId, Quorum]),
)


class State(msgspec.Struct):
    """What the stations decide against. `claims` and `touched` serve the engine and are no part of the digest."""

    policy: Policy
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    last_event: EventNo = EventNo(0)
    owner: OwnershipTaken | None = None
    """Who decides now."""
    claims: Claims = msgspec.field(default_factory=Claims)
    touched: Touched = msgspec.field(default_factory=lambda: {table: {} for table in TABLES})
    """Records changed since the last batch was sealed, by table and key: what the projection must write."""
    keys: dict[KeyId, Key] = {}
    queue: Queue = msgspec.field(default_factory=Queue)
    chain: Chain = None  # type: ignore[assignment]
    providers: dict[ProviderId, Provider] = {}
    leases: Leases = msgspec.field(default_factory=Leases)
    submissions: dict[LeaseId, bytes] = {}
    """Proof envelopes that wait for their verdict."""
    assignments: int = 0
    """Leases ever given."""
    results: dict[TaskId, Result] = {}
    """Those that a reorg could still unlink."""
    counts: dict[tuple[str, str], int] = {}
    """What happened to results, by kind, since this state began to be folded: no part of the digest."""
    settling: dict[Height, list[Tx]] = {}
    """Transactions of final blocks that memory has not let go of yet."""
    consumptions: dict[TaskId, Consumption] = {}
    """Those that a reorg could still take back."""
    passes: dict[str, Progress] = {}
    """How far retention has come, by the name of the pass (RET-002)."""
    kept_hot: dict[EventNo, str] = {}
    kept_warm: dict[EventNo, str] = {}
    """Results that a pass left behind, and why."""
    leaving: dict[EventNo, EventNo] = {}
    condemned: dict[Digest, EventNo] = {}
    """Bytes that were let go and may still have to be deleted, in the store and on the disk."""
    recent: Newest = msgspec.field(default_factory=Newest)
    """Digests accepted a moment ago: counted, no part of the digest."""
    marks: dict[str, Mark] = {}
    letters: dict[EventNo, DeadLetter] = {}
    """Dead letters that wait for an operator (EVD-007)."""
    owners: dict[str, str] = {}
    """Whose certificate the channel of an older sender wants (EVD-009)."""
    begun: dict[str, Begun] = {}
    """Sessions by channel, and"""
    buried: dict[str, int] = {}
    """how many letters of a channel wait: both counted, no part of the digest."""
    quotas: dict[ProviderId, Quota] = {}
    """Units used in the latest epoch (QUO-001)."""
    denials: dict[bytes, int] = {}
    """Until when a provider is passed over for a class of jobs, by both (LEA-006)."""
    paused: dict[str, Paused] = {}
    """Kinds that are given to nobody."""
    requeued: dict[TaskId, list[EventNo]] = {}
    """When jobs were put back whose earlier refunds a reorg could still move (RTY-001)."""
    quorums: dict[TaskId, Quorum] = {}
    """How far jobs with replicas have come, while they live or their money can still move (LEA-009)."""
    adopted: dict[int, bytes] = {}
    """The policy that the journal says counts, packed, under 0; empty where it says nothing (PRI-003)."""
    listings: dict[str, str] = {}
    """What the operator allows and denies: providers and regions (MAT-002)."""
    forgiven: dict[int, int] = {}
    """Under 0: the epoch whose outage was last forgiven to providers (LEA-008)."""
    ward: Ward = msgspec.field(default_factory=Ward)
    """Who of the providers is to be looked after when: counted, no part of the digest."""
    windows: dict[AccountId, Window] = {}
    """What requesters were given lately, where policy counts it (MAT-005)."""
    stale: set[ProviderId] = set()
    """Providers that changed since `supply` was last looked at."""
    supply: Supply = msgspec.field(default_factory=Supply)
    """Who could take work: an index, no part of the digest; it fills itself."""
    tally: Tally = msgspec.field(default_factory=Tally)
    """What happened in the queue since this process began: counted, no part of the digest (OBS-001)."""

    def __post_init__(self) -> None:
        if self.chain is None:
            self.chain = begun(ChainId(self.policy.chain_id))

    @property
    def open_height(self) -> Height:
        """CHN-002: the block that everything decided now belongs to."""
        return self.chain.head.height + 1  # type: ignore[return-value]  # asked for ten times a job

    @property
    def beacon(self) -> tuple[Height, bytes]:
        """MAT-001: height and beacon of the head."""
        return self.chain.head.height, self.chain.head.beacon


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """A state at the end of a batch, as stored; `digest` is the state's. What is missing at the end is empty."""

    tip: Tip
    digest: Digest
    accounts: list[Account]
    holds: list[Hold]
    settled: dict[Height, list[HoldId]]
    totals: tuple[Height, int, int, int]
    owner: OwnershipTaken | None
    keys: list[Key] = []
    jobs: list[Job] = []
    remembered: dict[bytes, Remembered] = {}
    chain: Chain | None = None
    providers: list[Provider] = []
    leases: list[Lease] = []
    submissions: dict[LeaseId, bytes] = {}
    assignments: int = 0
    results: list[Result] = []
    marks: list[Mark] = []
    parts: dict[str, msgspec.Raw] = {}
    """The later parts by name, as `PARTS` lists them."""


def digest(state: State) -> Digest:
    """ENG-003: equal states, equal digests, whatever the order in which their entries came to be.

    A station that nobody has used adds nothing, so that histories from before it was built keep their digest.
    """
    ledger = state.ledger
    totals = _totals(ledger)
    parts = [_digest_of(ledger.accounts), _digest_of(ledger.holds), _digest_of(ledger.settled)]
    for name, entries in _later_parts(state):
        if entries:
            parts.append(name + _digest_of(entries))
    return H("holdfast.state.v1", state.last_event, _pack((totals, _owner(state))), *parts)


def _later_parts(state: State) -> tuple[tuple[bytes, Mapping[Any, object]], ...]:
    queue, chain = state.queue, state.chain
    return (
        (b"keys", state.keys),
        (b"jobs", queue.jobs),
        (b"remembered", queue.remembered),
        (b"chain", {} if chain.is_untouched else {0: chain}),
        (b"providers", state.providers),
        (b"leases", state.leases.by_id),
        (b"submissions", state.submissions),
        (b"assignments", {0: state.assignments} if state.assignments else {}),
        (b"results", state.results),
        (b"marks", state.marks),
        *((part.name.encode(), getattr(state, part.name)) for part in PARTS),
    )


def _owner(state: State) -> tuple[object, ...] | None:
    """As it was packed from the beginning: what an owner's event says besides is a matter of that moment."""
    owner = state.owner
    return None if owner is None else (1, owner.epoch, owner.owner, owner.door)


def _totals(ledger: Ledger) -> tuple[Height, int, int, int]:
    return ledger.finalized, ledger.reserved_total, ledger.charged_total, ledger.refunded_total


def _digest_of(entries: Mapping[Any, object]) -> bytes:
    hasher = sha3_256()
    for key in sorted(entries):
        hasher.update(_pack((key, _as_founded(entries[key]))))
    return hasher.digest()


def _as_founded(entry: object) -> object:
    """A record without the trailing fields that it got later and that still say nothing (CAN-005)."""
    founded = FOUNDED.get(type(entry))  # type: ignore[arg-type]
    if founded is None:
        return entry
    fields, defaults = entry.__struct_fields__, entry.__struct_defaults__  # type: ignore[attr-defined]
    told = [getattr(entry, name) for name in fields]
    silent = defaults[len(defaults) - (len(fields) - founded) :] if len(fields) > founded else ()
    while len(told) > founded and told[-1] == silent[len(told) - founded - 1]:
        told.pop()
    return told


def snapshot(state: State, tip: Tip) -> bytes:
    """The state as bytes that carry their own hash; `tip` is the batch it is the fold of."""
    ledger, queue = state.ledger, state.queue
    money = (list(ledger.accounts.values()), list(ledger.holds.values()), ledger.settled, _totals(ledger))
    work = (list(state.keys.values()), list(queue.jobs.values()), queue.remembered, state.chain)
    lent = (list(state.providers.values()), list(state.leases.by_id.values()), state.submissions, state.assignments)
    shown = (list(state.results.values()), list(state.marks.values()))
    parts = {part.name: msgspec.Raw(_pack(getattr(state, part.name))) for part in PARTS}
    body = _pack(Snapshot(tip, digest(state), *money, state.owner, *work, *lent, *shown, parts))
    return MAGIC + H(SNAPSHOT_TAG, body) + body


def restore(raw: bytes, policy: Policy) -> tuple[State, Tip]:
    """The state that `snapshot` packed, or Corrupt where any bit of it changed.

    Whether it is the fold of its journal is asked when it is made and by `holdfast db check`, not at every start.
    """
    magic, hash_, body = raw[: len(MAGIC)], raw[len(MAGIC) : len(MAGIC) + 32], raw[len(MAGIC) + 32 :]
    if magic != MAGIC:
        raise Corrupt("ENG-003", f"not a snapshot of this version: it begins with {magic!r}")
    if hash_ != H(SNAPSHOT_TAG, body):
        raise Corrupt("ENG-003", "the snapshot does not have the hash it is stored with")
    try:
        stored = msgspec.msgpack.decode(body, type=Snapshot)
    except msgspec.DecodeError as fault:
        raise Corrupt("ENG-003", f"the snapshot cannot be read: {fault}") from fault
    accounts, jobs = {each.owner: each for each in stored.accounts}, {job.id: job for job in stored.jobs}
    _share(jobs, stored.holds)
    ledger = Ledger(accounts, {each.id: each for each in stored.holds}, stored.settled, *stored.totals)
    queue = counted(jobs)
    queue.remembered = stored.remembered
    state = State(policy, ledger, stored.tip.last, stored.owner, keys={key.id: key for key in stored.keys}, queue=queue)
    state.providers = {each.id: each for each in stored.providers}
    state.leases, state.submissions = collected(stored.leases), stored.submissions
    state.assignments = stored.assignments
    state.results = {each.task_id: each for each in stored.results}
    state.marks = {each.id: each for each in stored.marks}
    for part in PARTS:
        if (raw_part := stored.parts.get(part.name)) is not None:
            setattr(state, part.name, msgspec.msgpack.decode(raw_part, type=part.type))
    state.policy = adopted_policy(state.adopted) or policy
    state.begun, state.buried = marks_of.counted(state.marks), letters_of.counted(state.letters)
    if stored.chain is not None:
        state.chain = stored.chain
        _share_blocks(state.chain)
    state.ward = looked_after(state)
    state.recent.floor = stored.tip.last  # what was accepted before is in rows alone (RET-002)
    return state, stored.tip


def _share(jobs: dict[TaskId, Job], holds: list[Hold]) -> None:
    """What many jobs have in common is kept once, as it is where they are admitted: a third of a kilobyte a job."""
    texts, raws = dict[str, str]().setdefault, dict[bytes, bytes]().setdefault
    for job in jobs.values():
        job.caller = AccountId(texts(job.caller, job.caller))
        job.proof, job.requirements = texts(job.proof, job.proof), raws(job.requirements, job.requirements)
    for hold in holds:
        if (whose := jobs.get(TaskId(hold.id))) is not None:
            hold.id, hold.owner = HoldId(whose.id), whose.caller


def _share_blocks(chain: Chain) -> None:
    """The head is one of the blocks that are kept, not a copy of it."""
    kept = [*chain.recent.values(), *([chain.base] if chain.base else [])]
    for each in kept:
        if each.block.event == chain.head.event:
            chain.head = each.block
