"""How `holdfast compute match` reads its input: a queue, and the providers that may take its jobs (CMP-001)."""

from __future__ import annotations

from typing import Final

from holdfast.cli.compute import readers
from holdfast.cli.compute.described_match import MatchSettings, OpenProvider, WaitingJob
from holdfast.cli.compute.strict_json import InputFault, InvalidInput
from holdfast.core.base.values import Kind, Tier
from holdfast.core.job.spec import RESOURCES
from holdfast.core.policy import MatchOrder
from holdfast.core.provider.model import ProviderStatus

_U64, _HEX, _TEXT = readers.integer(), readers.hex_bytes(), readers.text()
_REGION: Final = {"region": readers.optional(_TEXT)}
_UNITS: Final = readers.fields({kind.value: readers.optional(_U64) for kind in Kind})

REQUIREMENTS: Final = {
    Kind.AI.value: readers.fields({"model": _TEXT} | _REGION),
    Kind.QUANTUM.value: readers.fields({"gates": readers.array_of(_TEXT), "depth": _U64, "width": _U64} | _REGION),
    Kind.COMPUTE.value: readers.fields({"runtime": _TEXT} | dict.fromkeys(RESOURCES, readers.optional(_U64)) | _REGION),
}
CAPABILITIES: Final = {
    Kind.AI.value: readers.fields({"models": readers.array_of(_TEXT)}),
    Kind.QUANTUM.value: readers.fields({"gates": readers.array_of(_TEXT), "depth_max": _U64, "width_max": _U64}),
    Kind.COMPUTE.value: readers.fields(
        {"runtimes": readers.array_of(_TEXT)} | dict.fromkeys(RESOURCES, readers.optional(_U64))
    ),
}
JOB: Final = {
    "job_id": _HEX,
    "kind": readers.one_of(Kind),
    "max_fee": _U64,
    "size_bytes": _U64,
    "tier": readers.one_of(Tier),
    "enqueue_ts_ms": _U64,
    "units": _U64,
    "requirements": readers.json_value(),
}
PROVIDER: Final = {
    "provider_id": _HEX,
    "status": readers.one_of(ProviderStatus),
    "health_ppm": _U64,
    "stake": _U64,
    "region": _TEXT,
    "capabilities": readers.fields({kind: readers.optional(reader) for kind, reader in CAPABILITIES.items()}),
    "leases_active": _U64,
    "leases_max": _U64,
    "units_used": _UNITS,
    "units_max": _UNITS,
    "price": readers.optional(readers.number_by_name()),
}


def match_policy() -> readers.FieldReader:
    known = {"order": readers.one_of(MatchOrder), "interleave_every": _U64}
    return readers.fields(known, MatchSettings, is_strict=True)


def jobs() -> readers.FieldReader:
    """The whole queue; the requirements of a job are read as its kind defines them."""

    def job(value: object, path: str) -> object:
        kind = value.get("kind") if isinstance(value, dict) else None
        requires = REQUIREMENTS.get(kind, JOB["requirements"]) if isinstance(kind, str) else JOB["requirements"]
        return readers.fields(JOB | {"requirements": requires}, WaitingJob).read(value, path)

    return _unique_array(readers.FieldReader("{" + ", ".join(JOB) + "}", job), "job_id")


def providers() -> readers.FieldReader:
    return _unique_array(readers.fields(PROVIDER, OpenProvider), "provider_id")


def _unique_array(item: readers.FieldReader, name: str) -> readers.FieldReader:
    """An array whose items have different values of the field `name`."""
    array = readers.array_of(item)

    def read_items(value: object, path: str) -> object:
        items, first_index = array.read(value, path), dict[object, int]()
        faults = []
        assert isinstance(items, list)
        for index, each in enumerate(items):
            first = first_index.setdefault(getattr(each, name), index)
            if first != index:
                faults.append(InputFault(f"{path}[{index}].{name}", f"the same as {path}[{first}].{name}"))
        if faults:
            raise InvalidInput(*faults)
        return items

    return readers.FieldReader(array.description, read_items)
