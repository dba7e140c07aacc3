"""How `holdfast compute match` reads a world: a queue, and who might take its jobs (CMP-001)."""

from __future__ import annotations

from typing import Final

from holdfast.cli import readers as read
from holdfast.cli.strict_json import Fault, Faulty
from holdfast.core.match.offline import MatchKnobs, OpenProvider, WaitingJob
from holdfast.core.policy import MatchOrder
from holdfast.core.provider.record import ProviderStatus
from holdfast.core.values import Kind, Tier

_U64, _HEX, _TEXT = read.integer(), read.hex_bytes(), read.text()
_REGION: Final = {"region": read.optional(_TEXT)}
_UNITS: Final = read.fields({kind.value: read.optional(_U64) for kind in Kind})

REQUIREMENTS: Final = {
    Kind.AI.value: read.fields({"model": _TEXT} | _REGION),
    Kind.QUANTUM.value: read.fields({"gates": read.each(_TEXT), "depth": _U64, "width": _U64} | _REGION),
}
CAPABILITIES: Final = {
    Kind.AI.value: read.fields({"models": read.each(_TEXT)}),
    Kind.QUANTUM.value: read.fields({"gates": read.each(_TEXT), "depth_max": _U64, "width_max": _U64}),
}
JOB: Final = {
    "job_id": _HEX,
    "kind": read.one_of(Kind),
    "max_fee": _U64,
    "size_bytes": _U64,
    "tier": read.one_of(Tier),
    "enqueue_ts_ms": _U64,
    "units": _U64,
    "requirements": read.json_value(),
}
PROVIDER: Final = {
    "provider_id": _HEX,
    "status": read.one_of(ProviderStatus),
    "health_ppm": _U64,
    "stake": _U64,
    "region": _TEXT,
    "capabilities": read.fields({kind: read.optional(reader) for kind, reader in CAPABILITIES.items()}),
    "leases_active": _U64,
    "leases_max": _U64,
    "units_used": _UNITS,
    "units_max": _UNITS,
}


def knobs() -> read.Reader:
    known = {"order": read.one_of(MatchOrder), "interleave_every": _U64}
    return read.fields(known, MatchKnobs, is_strict=True)


def jobs() -> read.Reader:
    """The whole queue; what a job requires is read as its kind has it."""

    def job(value: object, path: str) -> object:
        kind = value.get("kind") if isinstance(value, dict) else None
        requires = REQUIREMENTS.get(kind, JOB["requirements"]) if isinstance(kind, str) else JOB["requirements"]
        return read.fields(JOB | {"requirements": requires}, WaitingJob).read(value, path)

    return _each_once(read.Reader("{" + ", ".join(JOB) + "}", job), "job_id")


def providers() -> read.Reader:
    return _each_once(read.fields(PROVIDER, OpenProvider), "provider_id")


def _each_once(item: read.Reader, name: str) -> read.Reader:
    """An array in which no two have the same name."""
    array = read.each(item)

    def all_of(value: object, path: str) -> object:
        found, first = array.read(value, path), dict[object, int]()
        faults = []
        assert isinstance(found, list)
        for at, each in enumerate(found):
            before = first.setdefault(getattr(each, name), at)
            if before != at:
                faults.append(Fault(f"{path}[{at}].{name}", f"the same as {path}[{before}].{name}"))
        if faults:
            raise Faulty(*faults)
        return found

    return read.Reader(array.says, all_of)
