"""What every API works with: a principal with its rights, a method with its types, and access to the node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import msgspec

from holdfast.api.evidence.metrics import EvidenceMetrics
from holdfast.api.nmt_cache import NmtCache
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command
from holdfast.core.base.histogram import Histogram
from holdfast.core.base.values import AccountId, Tier
from holdfast.core.key.model import Key, Role
from holdfast.core.retention import Pass
from holdfast.engine import queries
from holdfast.engine.outcome import Outcome
from holdfast.engine.retention_report import RetentionReport
from holdfast.ports import Blobs


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
        self.evidence_metrics: EvidenceMetrics | None = None
        """Counters and open streams, on a node that receives evidence."""
        self.collector: RetentionCollector | None = None
        """Runs retention passes, on the owner."""
        self.nmt_cache = NmtCache()


class RetentionCollector(Protocol):
    """Runs retention passes (RET-002) and measures them."""

    bytes_hot: int
    bytes_warm: int
    durations: dict[str, Histogram]

    async def run_pass(self, pass_: Pass, *, is_dry: bool = False, after: int = 0) -> RetentionReport: ...


EVERYBODY: Final = frozenset[Role]()
OPERATORS: Final = frozenset({Role.OPERATOR})
READERS: Final = frozenset({Role.OPERATOR, Role.AUDITOR})
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


READ_METRICS: Final = "node.getMetrics"
"""The name of reading `/metrics`, which is not a method of JSON-RPC, in the scopes of keys."""
SCOPES_BESIDE_METHODS: Final = (READ_METRICS, "events.subscribe", "events.unsubscribe")
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
    """What belongs to an account is for its holder, for operators and for auditors."""
    if principal.role in OWN_ACCOUNT_ONLY and principal.account != account:
        return Refused("SEC-001", f"this key is {principal.account}'s, not {account}'s", name="Forbidden")
    return None
