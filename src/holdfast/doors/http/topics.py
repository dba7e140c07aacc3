"""Events as the outside sees them (EVT-001): under which name, with which fields, and who is shown which."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from holdfast.core import law
from holdfast.core.event import Event
from holdfast.core.proof.acts import ProofAccepted
from holdfast.core.provider.acts import ProviderSlashed
from holdfast.core.refusal import Refused
from holdfast.core.result.acts import ResultConsumed
from holdfast.core.values import AccountId
from holdfast.doors.desk import READERS, Visitor, nearest
from holdfast.doors.shapes import plain
from holdfast.engine.tail import Recorded

TOPICS: Final[dict[type[Event], str]] = {
    ProofAccepted: "cap.jobCompleted",
    ResultConsumed: "cap.resultConsumed",
    ProviderSlashed: "providerSlashed",
}
"""Public names of events; one that is not here goes by the name of its type."""
RENAMED: Final[dict[type[Event], dict[str, str]]] = {
    ProofAccepted: {"digest": "result_digest", "size": "result_size", "height": "height_resolved"},
    ProviderSlashed: {"id": "providerId"},
}
"""Fields that have a public name of their own, too."""
HIDDEN: Final = frozenset({"secret", "output"})
"""Fields that leave the node under no circumstances: secrets, not even as a hash, and result bytes (RPC-002)."""
ACCOUNTS: Final = ("account", "owner", "caller", "payee")
"""Fields that name whose event it is."""


class Wanted(msgspec.Struct, frozen=True):
    """What one subscriber is shown."""

    topics: frozenset[str] | None = None
    """None is all."""
    is_all: bool = False
    """Also what names no account, or another one."""
    account: AccountId | None = None

    def has(self, event: Event, topic: str) -> bool:
        return (self.topics is None or topic in self.topics) and (self.is_all or self._concerns(event))

    def _concerns(self, event: Event) -> bool:
        return self.account is not None and any(getattr(event, name, None) == self.account for name in ACCOUNTS)


def topic_of(kind: type[Event]) -> str:
    return TOPICS.get(kind) or kind.__name__


def shown(recorded: Recorded, topic: str) -> dict[str, Any]:
    """An event as JSON has it."""
    event = recorded.event
    renamed = RENAMED.get(type(event), {})
    told = [name for name in event.__struct_fields__ if name not in HIDDEN]
    fields = {renamed.get(name, name): plain(getattr(event, name)) for name in told}
    return {"number": recorded.number, "time_ms": recorded.time_ms, "type": topic, "event": fields}


def wanted(visitor: Visitor, topics: Iterable[str] | None, *, is_public: bool) -> Wanted | Refused:
    """What this visitor may see of these topics: operators and auditors all, a requester what names its account."""
    asked = None if topics is None else frozenset(topics)
    known = sorted(topic_of(kind) for kind in law.EVENTS)
    if asked is not None and (strange := sorted(asked - set(known))):
        return Refused("EVT-001", f"types: no event {strange[0]!r:.80}", _hint(strange[0], known), "InvalidParams")
    return Wanted(asked, is_public or visitor.role in READERS, visitor.account)


def _hint(name: str, known: list[str]) -> str:
    close = nearest(name, known)
    return close if close.startswith("did") else f"there are {', '.join(known)}"
