"""What every API works with: a principal with its rights, a method with its types, and access to the node."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from holdfast.api.evidence.metrics import EvidenceMetrics
from holdfast.api.evidence.work_logs import LogSignals
from holdfast.api.front.settings import FrontCounts
from holdfast.api.nmt_cache import NmtCache
from holdfast.api.rpc.admission import InputChecker
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command
from holdfast.core.base.values import AccountId, Height, Tier
from holdfast.core.key.model import Key, Role
from holdfast.core.result.model import Result
from holdfast.core.retention import Pass
from holdfast.engine import queries
from holdfast.engine.archive_report import PruneReport, ReadBackReport
from holdfast.engine.outcome import Outcome
from holdfast.engine.proofs import KnownSlices
from holdfast.engine.retention_report import RetentionReport
from holdfast.ports import Blobs, OutputReader
from holdfast.ports.blobs import BlobFiles
from holdfast.ports.inputs import Inputs
from holdfast.system.histogram import Histogram


class Principal(msgspec.Struct, frozen=True):
    """Who sends a request: the holder of an API key, a program on the machine, or anonymous."""

    name: str
    """The key's id; `local` for a program that can open the node's Unix socket."""
    role: Role | None = None
    account: AccountId | None = None
    tier: Tier = Tier.FREE
    scopes: tuple[str, ...] = ()


ANONYMOUS: Final = Principal("anonymous")
LOCAL: Final = Principal("local", Role.OPERATOR)
"""The data folder's permissions are the key to the Unix socket."""


def principal_of(key: Key) -> Principal:
    return Principal(key.id, key.role, key.account, key.tier, tuple(key.scopes.split()))


class ServedCounts(msgspec.Struct):
    """Blobs that were asked for since the process started (SRV-001)."""

    blobs: int = 0
    archived: int = 0
    """Those that are not here any more: their locators were sent."""


SubmitCommand = Callable[[Command], Awaitable[Outcome]]
ForwardToOwner = Callable[[str, object, Principal], Awaitable[Any]]
"""Method, parameters and principal to the owner's answer; parameters and answer are as JSON has them."""


class NodeAccess:
    """What an API asks: the owner, or a follower that forwards writes to the owner."""

    def __init__(
        self, source: queries.ReadSource, submit: SubmitCommand, forward_to_owner: ForwardToOwner | None = None
    ) -> None:
        self.source, self.submit, self.forward_to_owner = source, submit, forward_to_owner
        self.submit_grouped: SubmitCommand = submit
        """For commands that come in numbers: those of concurrent calls are decided together."""
        self.blobs: Blobs | None = None
        """The warm store, on a node that has one."""
        self.inputs: Inputs | None = None
        """Inputs of jobs, on a node that has a folder for them."""
        self.log_signals = LogSignals()
        """Who waits for what running work says, on a node that receives evidence."""
        self.evidence_metrics: EvidenceMetrics | None = None
        """Counters and open streams, on a node that receives evidence."""
        self.grpc_connections: Callable[[], FrontCounts] | None = None
        """None where no front process accepts them."""
        self.collector: RetentionCollector | None = None
        """Runs retention passes, on the owner."""
        self.scrubber: OutputScrubber | None = None
        """Reads output bytes again, on the owner."""
        self.journal_scrubber: JournalScrubState | None = None
        """How far the journal was verified, on the owner."""
        self.owner_silent_ms: Callable[[], int] = int
        """How long this standby has seen no heartbeat of the owner (ENG-008)."""
        self.clock_fault: Callable[[], Refused | None] = lambda: None
        """Why the machine's clock is not believed (CAN-006)."""
        self.archive: ArchiveOperations | None = None
        """Prunes and audits, on the owner, where an archive is configured."""
        self.archived: ArchivedBytes | None = None
        """Fetches what only the archive holds, on every node where one is configured."""
        self.stored_key_of: Callable[[Result], tuple[int, bytes] | None] = lambda _: None
        """BLB-003: the key of one result, on a node that has the archive key and no archive any more."""
        self.packages: PackageService | None = None
        """Blocks for followers, on the owner."""
        self.blob_files: BlobFiles | None = None
        """The bytes of blobs that this node has (SRV-001)."""
        self.served = ServedCounts()
        self.nmt_cache = NmtCache()
        self.long_turn = asyncio.Semaphore(1)
        """SEC-002: proofs and long lists are made one after the other, a slice at a time, and others in between."""
        self.log_slices: KnownSlices = {}
        self.input_checker = InputChecker()


class RetentionCollector(Protocol):
    """Runs retention passes (RET-002) and measures them."""

    bytes_hot: int
    bytes_warm: int
    durations: dict[str, Histogram]

    async def measure(self) -> None: ...

    async def run_pass(self, pass_: Pass, *, is_dry: bool = False, after: int = 0) -> RetentionReport: ...


class ScrubState(Protocol):
    """How far a pass over all output bytes has come."""

    passed_ms: int
    damaged: set[str]


class OutputScrubber(Protocol):
    """Reads all output bytes again (TIER-001)."""

    bytes_read: int
    repaired: int

    @property
    def progress(self) -> ScrubState: ...


class JournalScrubState(Protocol):
    """What the scrubber has verified (ENG-009)."""

    batches: int
    verified_until: int
    finished_ms: int
    archive_faults: int


class PackageService(Protocol):
    """Final blocks as followers sync them (SYN-001)."""

    async def final_height(self) -> Height: ...
    async def package(self, height: Height) -> bytes | None: ...
    async def notices(self, height: Height) -> Sequence[bytes]: ...
    async def blob(self, height: Height, number: int) -> bytes | None: ...


class ArchivedBytes(Protocol):
    """Outputs that this node has deleted."""

    async def open_output(self, result: Result) -> OutputReader | Refused | None:
        """RES-009: bytes that only the archive holds; None where it does not."""
        ...


class ArchiveOperations(Protocol):
    """What an operator does with the archive (PRU-001), and what its workers have counted."""

    @property
    def metrics(self) -> Any: ...
    @property
    def sync_metrics(self) -> Any: ...
    @property
    def count_lost(self) -> Callable[[], int]: ...
    async def prune_before(self, height: Height) -> PruneReport: ...
    @property
    def audit_report(self) -> ReadBackReport: ...
    def begin_audit(self, sample: int) -> ReadBackReport: ...
    def key_of(self, result: Result) -> tuple[int, bytes]:
        """BLB-003: the id of the archive key, and the key of one result."""
        ...


EVERYBODY: Final = frozenset[Role]()
OPERATORS: Final = frozenset({Role.OPERATOR})
READERS: Final = frozenset({Role.OPERATOR, Role.AUDITOR})
TREASURERS: Final = frozenset({Role.TREASURER})
"""Who moves money in and out (ESC-003); operators cannot."""
LEDGER_READERS: Final = READERS | TREASURERS
REQUESTERS: Final = frozenset({Role.REQUESTER, Role.OPERATOR})
OWNERS: Final = frozenset({Role.REQUESTER, Role.OPERATOR, Role.AUDITOR})
"""Requesters for what is theirs; operators and auditors for everything."""
OWN_ACCOUNT_ONLY: Final = frozenset({Role.REQUESTER, Role.PROVIDER})
"""Roles whose keys reach only what belongs to their own account."""


class RpcCall(msgspec.Struct, frozen=True, gc=False):
    """Who calls which method, as the dispatcher passes it to the handler."""

    method: str
    principal: Principal


class RpcMethod(msgspec.Struct, frozen=True):
    """One method of the API."""

    summary: str
    """One sentence for `rpc.discover` and the help."""
    params: type[msgspec.Struct]
    result: Any
    """The type of the answer, for the OpenRPC document."""
    handle: Callable[[NodeAccess, RpcCall, Any], Awaitable[object]]
    """Returns a value or Refused; raises Unavailable or Corrupt."""
    roles: frozenset[Role] = EVERYBODY
    is_write: bool = False
    """Only the owner decides it: a follower forwards it."""
    cost: int = 1
    """As how many requests it counts against the rate of its sender (SEC-001); long lists count as more."""


LONG_READ_COST: Final = 4
"""Of methods that read a piece of the journal: a whole block, the log, thousands of events."""
ALWAYS_PUBLIC: Final = frozenset({"rpc.discover", "node.getStatus", "auth.setToken"})
"""Methods that need no key even where reads are not public."""


def for_keys_only(methods: Mapping[str, RpcMethod]) -> dict[str, RpcMethod]:
    """SEC-002: where reads are not public, methods that are open to everybody become methods of every key."""
    return {
        name: method
        if method.roles or name in ALWAYS_PUBLIC
        else msgspec.structs.replace(method, roles=frozenset(Role))
        for name, method in methods.items()
    }


READ_OUTPUT: Final = "cap.readOutput"
"""The name of reading an output's bytes, which have a route of their own (RES-009), in the scopes of keys."""
PUT_INPUT: Final = "cap.putInput"
"""The name of uploading an input (JOB-003), which has a route of its own, in the scopes of keys."""
READ_BLOBS: Final = "blob.read"
"""The name of reading the blobs of a block (SRV-001), in the scopes of keys."""
GET_BLOBS: Final = "engine_getBlobsV1"
READ_LOGS: Final = "cap.readLogs"
"""The name of reading what running work says (EVD-005), in the scopes of keys."""
READ_METRICS: Final = "node.getMetrics"
"""The name of reading `/metrics`, which is not a method of JSON-RPC, in the scopes of keys."""
READ_PACKAGES: Final = "chain.readPackages"
"""The name of reading blocks as followers do (SYN-001), in the scopes of keys."""
HOST_CALL: Final = "host.call"
"""In the scopes of a key: its holder executes contracts and says in which transaction a call is (JOB-004)."""
SCOPES_BESIDE_METHODS: Final = (
    *(READ_METRICS, READ_OUTPUT, PUT_INPUT, READ_LOGS, READ_BLOBS, READ_PACKAGES, GET_BLOBS, HOST_CALL),
    *("events.subscribe", "events.unsubscribe"),
)
"""What a scope may name beside the methods that every connection has."""


def why_not_allowed(principal: Principal, name: str, roles: frozenset[Role]) -> Refused | None:
    """SEC-001: where roles are named a key is needed, and a key reaches no further than its role and scopes."""
    if not roles:
        return None
    if principal.role is None:
        return Refused("SEC-001", f"{name} needs a key", "send `Authorization: Bearer <token>`", "Unauthorized")
    if principal.role not in roles:
        may = ", ".join(sorted(roles))
        return Refused("SEC-001", f"{name} is for {may}, this key has the role {principal.role}", name="Forbidden")
    if principal.scopes and not any(is_in_scope(scope, name) for scope in principal.scopes):
        return Refused("SEC-001", f"{name} is outside of this key's scopes", " ".join(principal.scopes), "Forbidden")
    return None


def is_in_scope(scope: str, name: str) -> bool:
    """Whether a scope covers a method; `group.*` covers all methods of the group, and itself."""
    return scope == name or (scope.endswith(".*") and name.startswith(scope[:-1]))


def why_not_own(principal: Principal, account: AccountId) -> Refused | None:
    """What belongs to an account is for its holder, for operators and for auditors; whose it is is not told."""
    if principal.role in OWN_ACCOUNT_ONLY and principal.account != account:
        return Refused("SEC-001", f"this is not {principal.account}'s", "use a key of its account", "Forbidden")
    return None
