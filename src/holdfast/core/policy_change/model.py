"""The adopted policy, as the state keeps it."""

from __future__ import annotations

from typing import Protocol

import msgspec

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.values import EventNo
from holdfast.core.chain.model import Chain
from holdfast.core.lease.model import HasLeases
from holdfast.core.policy import Policy

POLICY_KEY, EVENT_KEY = 0, 1
"""The keys of `policy_bytes`: the policy, and the event that adopted it."""


class PolicyState(HasLeases, Protocol):
    """The parts of the state that this domain reads and changes."""

    policy_bytes: dict[int, bytes]
    chain: Chain


def read_policy(packed: bytes) -> Policy:
    try:
        return msgspec.msgpack.decode(packed, type=Policy)
    except msgspec.DecodeError as fault:
        raise Corrupt("PRI-003", f"the adopted policy cannot be read: {fault}") from fault


def adopted_policy(policy_bytes: dict[int, bytes]) -> Policy | None:
    """The policy that the journal adopted last; None where it adopted none."""
    return read_policy(policy_bytes[POLICY_KEY]) if policy_bytes else None


def adoption_event(policy_bytes: dict[int, bytes]) -> EventNo:
    """The event of that adoption; 0 where it is not known."""
    return EventNo(int.from_bytes(policy_bytes.get(EVENT_KEY, b""), "big"))
