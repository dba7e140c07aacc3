"""The settings of an agent, and their checks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.core.policy.settings import DAY_MS, SECOND_MS

_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})")
_ACCOUNT: Final = re.compile(r"[a-z0-9][a-z0-9:._-]{0,127}")


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One provider at one node."""

    node: str
    """HOST:PORT of the node's gRPC server."""
    data: Path
    name: str
    account: str
    """Receives the fees and provides the stake."""
    models: tuple[str, ...]
    circuits: bool = False
    """Whether it runs QUANTUM jobs, on the simulator that comes with Holdfast."""
    slots: int = 4
    """How many leases are executed at a time."""
    price: int = 1
    """Per unit of work."""
    region: str = ""
    attested_ms: int = 30 * DAY_MS
    """How long a registration is attested; it is renewed in time."""
    execution_ms_max: int = 1_800 * SECOND_MS
    drain_ms: int = 30 * SECOND_MS
    """How long running work may continue when the agent is stopped …"""
    flush_ms: int = 10 * SECOND_MS
    """… and how long the node may then take to acknowledge what was spooled."""
    retry_base_ms: int = 100
    retry_cap_ms: int = 5 * SECOND_MS
    ack_stall_ms: int = 30 * SECOND_MS
    """An evidence stream whose acks do not advance for this long is opened again."""
    metrics_port: int | None = None
    """The loopback port of the sender's metrics, for Prometheus; 0 picks a free one."""
    call_ms: int = 30 * SECOND_MS
    """The timeout of one call; an upload has this for every part."""


def check_settings(settings: AgentSettings) -> Iterator[Refused]:
    """SEC-001: everything that the node would refuse, or that cannot work, reported before anything is started."""
    address = _ADDRESS.fullmatch(settings.node)
    if address is None or not 0 < int(address[2]) < 65_536:
        yield _bad("node", f"{settings.node!r} is not HOST:PORT")
    if not 1 <= len(settings.name) <= 64:
        yield _bad("name", "1 to 64 characters")
    if not _ACCOUNT.fullmatch(settings.account):
        yield _bad("account", "1 to 128 of a-z 0-9 : . _ - beginning with a letter or a digit")
    if not settings.models and not settings.circuits:
        yield _bad("model", "none is offered", "pass at least one --model, e.g. --model echo, or --circuits")
    if len(settings.region) > 64:
        yield _bad("region", "at most 64 characters")
    if settings.metrics_port is not None and not 0 <= settings.metrics_port < 65_536:
        yield _bad("metrics_port", f"{settings.metrics_port} is not a port")
    bounds = {"slots": (1, 10_000), "price": (0, 2**62 - 1), "attested_ms": (60_000, 3_650 * DAY_MS)}
    waits = dict.fromkeys(("execution_ms_max", "retry_base_ms", "retry_cap_ms", "ack_stall_ms", "call_ms"), (1, 2**40))
    for name, (low, high) in (bounds | waits | dict.fromkeys(("drain_ms", "flush_ms"), (0, 2**40))).items():
        if not low <= getattr(settings, name) <= high:
            yield _bad(name, f"{getattr(settings, name)} is not in {low} … {high}")


def _bad(path: str, message: str, hint: str = "") -> Refused:
    return Refused("SEC-001", f"{path}: {message}", hint, "BadConfig")


def host_of(address: str) -> str:
    """The host of a valid HOST:PORT, without brackets."""
    return address.rpartition(":")[0].strip("[]")
