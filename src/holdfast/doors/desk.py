"""Who asks and who answers: a visitor with its rights, a method with what it takes, and the desk between them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from typing import Any, Final, Protocol

import msgspec

from holdfast.core import law
from holdfast.core.key import Key, Role
from holdfast.core.refusal import Refused
from holdfast.core.retention import Pass
from holdfast.core.values import AccountId, Tier
from holdfast.doors.shelf import Shelf
from holdfast.doors.witness import Witness
from holdfast.engine import read
from holdfast.engine.collected import Report
from holdfast.engine.outcome import Outcome
from holdfast.ports import Blobs


class Visitor(msgspec.Struct, frozen=True):
    """Who stands at a door: the holder of a key, somebody on the machine, or nobody known."""

    name: str
    """The key's id; `local` for whoever may open the node's socket."""
    role: Role | None = None
    account: AccountId | None = None
    tier: Tier = Tier.FREE
    scopes: tuple[str, ...] = ()


NOBODY: Final = Visitor("nobody")
LOCAL: Final = Visitor("local", Role.OPERATOR)
"""The folder's permission is the key of the local socket."""


def visitor_of(key: Key) -> Visitor:
    return Visitor(key.id, key.role, key.account, key.tier, tuple(key.scopes.split()))


Submit = Callable[[law.Command], Awaitable[Outcome]]
HandOn = Callable[[str, object, Visitor], Awaitable[Any]]
"""Method, parameters and visitor to the plain answer of whoever may decide."""


class Desk:
    """Who answers at a door: the owner, or a follower that hands writes on to the owner."""

    def __init__(self, source: read.Source, submit: Submit, hand_on: HandOn | None = None) -> None:
        self.source, self.submit, self.hand_on = source, submit, hand_on
        self.blobs: Blobs | None = None
        """Where output bytes rest, on a node that holds any."""
        self.witness: Witness | None = None
        """What is seen of evidence, on a node that takes any."""
        self.collector: Collecting | None = None
        """Who lets results' bytes go, on the owner."""
        self.shelf = Shelf()


class Collecting(Protocol):
    """Whoever lets results' bytes go (RET-002), and how that goes."""

    bytes_hot: int
    bytes_warm: int

    async def run_pass(self, pass_: Pass, *, is_dry: bool = False, after: int = 0) -> Report: ...
    def durations(self) -> dict[str, tuple[list[tuple[str, int]], float]]: ...


EVERYBODY: Final = frozenset[Role]()
OPERATORS: Final = frozenset({Role.OPERATOR})
READERS: Final = frozenset({Role.OPERATOR, Role.AUDITOR})
REQUESTERS: Final = frozenset({Role.REQUESTER, Role.OPERATOR})
OWNERS: Final = frozenset({Role.REQUESTER, Role.OPERATOR, Role.AUDITOR})
"""Requesters for what is theirs; operators and auditors for all."""


class Method(msgspec.Struct, frozen=True):
    """One thing a node can be asked."""

    says: str
    """One sentence for `rpc.discover` and the help."""
    params: type[msgspec.Struct]
    result: Any
    """The type of the answer, for the description."""
    handle: Callable[[Desk, Visitor, Any], Awaitable[object]]
    """Returns a value or Refused; raises Unavailable or Corrupt."""
    roles: frozenset[Role] = EVERYBODY
    is_write: bool = False
    """Decided by the owner only: a follower hands it on."""


def why_not_allowed(visitor: Visitor, name: str, method: Method) -> Refused | None:
    """SEC-001: no write without a key, nothing beyond a key's role and scopes."""
    if not method.roles:
        return None
    if visitor.role is None:
        return Refused("SEC-001", f"{name} needs a key", "send `Authorization: Bearer <token>`", "Unauthorized")
    if visitor.role not in method.roles:
        may = ", ".join(sorted(method.roles))
        return Refused("SEC-001", f"{name} is for {may}, this key has the role {visitor.role}", name="Forbidden")
    if visitor.scopes and not any(covers(scope, name) for scope in visitor.scopes):
        return Refused("SEC-001", f"{name} is outside of this key's scopes", " ".join(visitor.scopes), "Forbidden")
    return None


def covers(scope: str, name: str) -> bool:
    """Whether a scope lets its holder do this; `group.*` covers what is in the group, and itself."""
    return scope == name or (scope.endswith(".*") and name.startswith(scope[:-1]))


def why_not_own(visitor: Visitor, account: AccountId) -> Refused | None:
    """What belongs to an account is for its holder, for operators and auditors."""
    if visitor.role is Role.REQUESTER and visitor.account != account:
        return Refused("SEC-001", f"this key is {visitor.account}'s, not {account}'s", name="Forbidden")
    return None


def nearest(name: str, known: list[str]) -> str:
    """A hint at what was perhaps meant."""
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else "rpc.discover lists them"
