"""The settings of an agent, and their checks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from holdfast.agent.executors.own_work import OwnExecutor, why_not_own
from holdfast.core.base.errors import Refused
from holdfast.core.job.spec import RESOURCES
from holdfast.core.policy import DAY_MS, SECOND_MS
from holdfast.wire.signed_messages import read_invitation

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
    executors: tuple[OwnExecutor, ...] = ()
    """The provider's own work."""
    cpu_milli: int = 0
    memory_mb: int = 0
    gpus: int = 0
    """What each slot has, for COMPUTE jobs; memory is also the limit of programs, where it is not 0."""
    slots: int = 4
    """How many leases are executed at a time."""
    price: int = 1
    """Per unit of work."""
    prices: dict[str, int] = {}
    """Of models that have a price of their own."""
    region: str = ""
    labels: dict[str, str] = {}
    """What it declares beside the region, for jobs that ask for it: `gpu: a100` (MAT-002)."""
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
    invitation: str = ""
    """An operator's invitation, `hfi_…` (SEC-002)."""
    call_ms: int = 30 * SECOND_MS
    """The timeout of one call; an upload has this for every part."""


def check_settings(settings: AgentSettings) -> Iterator[Refused]:
    """SEC-001: everything that the node would refuse, or that cannot work, reported before anything is started."""
    try:
        read_invitation(settings.invitation)
    except ValueError as fault:
        yield _bad("invitation", str(fault))
    address = _ADDRESS.fullmatch(settings.node)
    if address is None or not 0 < int(address[2]) < 65_536:
        yield _bad("node", f"{settings.node!r} is not HOST:PORT")
    if not 1 <= len(settings.name) <= 64:
        yield _bad("name", "1 to 64 characters")
    if not _ACCOUNT.fullmatch(settings.account):
        yield _bad("account", "1 to 128 of a-z 0-9 : . _ - beginning with a letter or a digit")
    if not settings.models and not settings.circuits and not settings.executors:
        hint = "pass at least one of --exec, --python, --http, --model and --circuits, e.g. --exec 'wc=wc -c'"
        yield _bad("model", "none is offered", hint)
    yield from filter(None, map(why_not_own, settings.executors))
    names = [(own.kind, own.name) for own in settings.executors]
    for kind, name in {each for each in names if names.count(each) > 1}:
        yield _bad("executors", f"{kind}:{name} is there twice")
    if len(settings.region) > 64:
        yield _bad("region", "at most 64 characters")
    yield from _label_faults(settings.labels)
    if settings.metrics_port is not None and not 0 <= settings.metrics_port < 65_536:
        yield _bad("metrics_port", f"{settings.metrics_port} is not a port")
    for model, price in settings.prices.items():
        if model not in {*settings.models, *(own.name for own in settings.executors)} or not 0 <= price < 2**62:
            yield _bad("price", f"{model}={price}: an offered model and a price of 0 … 2⁶² − 1")
    bounds = {
        "slots": (1, 10_000),
        "price": (0, 2**62 - 1),
        **dict.fromkeys(RESOURCES, (0, 2**53)),
        "attested_ms": (60_000, 3_650 * DAY_MS),
    }
    waits = dict.fromkeys(("execution_ms_max", "retry_base_ms", "retry_cap_ms", "ack_stall_ms", "call_ms"), (1, 2**40))
    for name, (low, high) in (bounds | waits | dict.fromkeys(("drain_ms", "flush_ms"), (0, 2**40))).items():
        if not low <= getattr(settings, name) <= high:
            yield _bad(name, f"{getattr(settings, name)} is not in {low} … {high}")


def _label_faults(labels: dict[str, str]) -> Iterator[Refused]:
    words = [text for pair in labels.items() for text in pair]
    if len(labels) > 16 or not all(1 <= len(text) <= 128 for text in words):
        yield _bad("label", "at most 16, each NAME=VALUE of 1 to 128 characters each")


def _bad(path: str, message: str, hint: str = "") -> Refused:
    return Refused("SEC-001", f"{path}: {message}", hint, "BadConfig")


def host_of(address: str) -> str:
    """The host of a valid HOST:PORT, without brackets."""
    return address.rpartition(":")[0].strip("[]")
