"""What a provider tells its agent at the start, and what of it cannot work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

import msgspec

from holdfast.core.policy.knobs import DAY_MS, SECOND_MS
from holdfast.core.refusal import Refused

_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})")
_ACCOUNT: Final = re.compile(r"[a-z0-9][a-z0-9:._-]{0,127}")


class Signer(Protocol):
    """Whoever holds the provider's key."""

    @property
    def public(self) -> bytes: ...
    def sign(self, message: bytes) -> bytes: ...


class Tls(msgspec.Struct, frozen=True):
    """What the connection is checked with, as PEM, and what the agent shows of itself where the node asks for it."""

    authority: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None

    def __repr__(self) -> str:
        return "Tls(…)"


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One provider at one node."""

    node: str
    """HOST:PORT of the node's gRPC door."""
    data: Path
    name: str
    account: str
    """Where fees go and the stake comes from."""
    models: tuple[str, ...]
    circuits: bool = False
    """Whether it runs QUANTUM jobs, on the simulator that comes with Holdfast."""
    slots: int = 4
    """Leases that are worked on at a time."""
    price: int = 1
    """For a unit of work."""
    region: str = ""
    attested_ms: int = 30 * DAY_MS
    """For how long what the agent says of itself holds; it is said anew in time."""
    execution_ms_max: int = 1_800 * SECOND_MS
    drain_ms: int = 30 * SECOND_MS
    """How long running work may go on when the agent is told to stop …"""
    flush_ms: int = 10 * SECOND_MS
    """… and how long the node may then take to acknowledge what was spooled."""
    retry_base_ms: int = 100
    retry_cap_ms: int = 5 * SECOND_MS
    still_ms: int = 30 * SECOND_MS
    """A stream of evidence whose acks stand still for this long is opened anew."""
    metrics_port: int | None = None
    """Where Prometheus reads what the sender of evidence counts, on the loopback; 0 takes one that is free."""
    call_ms: int = 30 * SECOND_MS
    """How long one answer of the node may take; an upload gets this for every part."""


def faults(settings: AgentSettings) -> Iterator[Refused]:
    """SEC-001: everything that the node would refuse, or that could never work, said before anything is started."""
    address = _ADDRESS.fullmatch(settings.node)
    if address is None or not 0 < int(address[2]) < 65_536:
        yield _bad("node", f"{settings.node!r} is not HOST:PORT")
    if not 1 <= len(settings.name) <= 64:
        yield _bad("name", "1 to 64 signs")
    if not _ACCOUNT.fullmatch(settings.account):
        yield _bad("account", "1 to 128 of a-z 0-9 : . _ - beginning with a letter or a digit")
    if not settings.models and not settings.circuits:
        yield _bad("model", "none is offered", "name at least one: --model echo, or say --circuits")
    if len(settings.region) > 64:
        yield _bad("region", "at most 64 signs")
    if settings.metrics_port is not None and not 0 <= settings.metrics_port < 65_536:
        yield _bad("metrics_port", f"{settings.metrics_port} is no port")
    bounds = {"slots": (1, 10_000), "price": (0, 2**62 - 1), "attested_ms": (60_000, 3_650 * DAY_MS)}
    waits = dict.fromkeys(("execution_ms_max", "retry_base_ms", "retry_cap_ms", "still_ms", "call_ms"), (1, 2**40))
    for name, (low, high) in (bounds | waits | dict.fromkeys(("drain_ms", "flush_ms"), (0, 2**40))).items():
        if not low <= getattr(settings, name) <= high:
            yield _bad(name, f"{getattr(settings, name)} is not in {low} … {high}")


def _bad(path: str, says: str, hint: str = "") -> Refused:
    return Refused("SEC-001", f"{path}: {says}", hint, "BadConfig")


def host_of(address: str) -> str:
    """The host of a good HOST:PORT, without brackets."""
    return address.rpartition(":")[0].strip("[]")
