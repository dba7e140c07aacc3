"""The payload of a job (JOB-003): a typed spec per kind; a malformed one is refused with the path of the field."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec

from holdfast.core.base.canonical import NotCanonical, canonical, decode
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import PPM, U64_MAX, Kind
from holdfast.core.job.quorum import QUORUM, REPLICAS_MAX

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**62)]
Millis = Annotated[int, msgspec.Meta(ge=1, le=365 * 24 * 3_600_000)]
Ppm = Annotated[int, msgspec.Meta(ge=0, le=PPM)]
SCALARS: Final = (bool, int, str)
ATTESTED: Final = "attested"
TRAPS: Final = "traps"
TRAPPED_SHOTS_MAX: Final = 1_000_000
"""The most runs of a job that is proved by traps (PRF-002)."""
GATES_MAX: Final = 64
"""Gates are in memory while the job lives (ENG-007), so their number is bounded."""


ProviderName = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Providers = Annotated[list[ProviderName], msgspec.Meta(max_length=64)]
"""Ids of providers; they are in memory while the job lives, too."""


class AiSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model, its input (a prompt, or a reference), and parameters in integers."""

    model: Name
    prompt: Text | None = None
    input: Text | None = None
    params: dict[Name, Any] = {}
    precision: Name | None = None


class QuantumSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A circuit in OpenQASM, how often it is run, how many runs are traps, and what hardware it needs."""

    circuit: Text
    shots: Count
    width: Count
    depth: Count
    trap_ppm: Ppm = 0
    gates: Annotated[list[Name], msgspec.Meta(max_length=GATES_MAX)] = []
    precision: Name | None = None


class QuorumSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """LEA-009: n of m providers must return the same output."""

    n: Annotated[int, msgspec.Meta(ge=1, le=REPLICAS_MAX)]
    m: Annotated[int, msgspec.Meta(ge=1, le=REPLICAS_MAX)]


class Payload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a requester submits; the type of `spec` depends on the kind."""

    kind: Kind
    spec: dict[str, Any]
    units: Count = 1
    """Units of work, as the provider's price counts them."""
    ttl_ms: Millis | None = None
    region: Name | None = None
    allow: Providers | None = None
    """Only these may run it; None: every eligible provider (MAT-002)."""
    deny: Providers = []
    """These may not."""
    proof: Name = ATTESTED
    """The proof method of the result; with a quorum, that of each replica."""
    quorum: QuorumSpec | None = None
    """n of m providers must return the same output (LEA-009)."""


class WorkPayload(Payload, frozen=True):
    """A payload as the provider gets it."""

    raw: bytes = b""
    """The canonical bytes that it was read from."""


def read_work_payload(raw: bytes) -> WorkPayload:
    """The payload of these canonical bytes; raises where they are not one."""
    payload = msgspec.convert(decode(raw), Payload)
    return WorkPayload(**msgspec.structs.asdict(payload), raw=raw)


class ParsedPayload(msgspec.Struct, frozen=True, gc=False):
    """A valid payload: its canonical bytes and the fields that the queue needs."""

    kind: Kind
    raw: bytes
    units: int
    ttl_ms: int | None
    requirements: bytes
    """Canonical map of what a provider must have; the matcher reads it."""
    proof: str
    quorum_n: int = 0
    quorum_m: int = 0
    replica_proof: str = ""
    """The proof method of each replica; empty without replicas."""


def read_payload(value: object) -> ParsedPayload | Refused:
    """JOB-003: the parsed payload, or a refusal with the path of the fault."""
    try:
        raw = canonical(value)  # first: it refuses values such as floats, which the typed reader would accept
        payload = msgspec.convert(value, Payload)
        needs = KIND_READERS[payload.kind](payload)
        quorum = _quorum(payload)
    except msgspec.ValidationError as fault:
        return _refuse_field(*_locate_fault(str(fault)))
    except NotCanonical as fault:
        return _refuse_field(_payload_path(fault.path), fault.message)
    except _Malformed as fault:
        return _refuse_field(f"payload.{fault.path}", fault.message)
    lists = {"allow": payload.allow, "deny": payload.deny or None}
    needs |= {"region": payload.region} | {name: sorted(set(ids)) for name, ids in lists.items() if ids is not None}
    requirements = canonical({name: value for name, value in needs.items() if value is not None})
    parsed = ParsedPayload(
        kind=payload.kind,
        raw=raw,
        units=payload.units,
        ttl_ms=payload.ttl_ms,
        requirements=requirements,
        proof=payload.proof,
    )
    if quorum is None:
        return parsed
    return msgspec.structs.replace(
        parsed, proof=QUORUM, quorum_n=quorum.n, quorum_m=quorum.m, replica_proof=_replica_proof(payload)
    )


def _quorum(payload: Payload) -> QuorumSpec | None:
    """LEA-009: more than half must agree, so that two outputs cannot both win."""
    quorum = payload.quorum
    if quorum is None:
        if payload.proof == QUORUM:
            raise _Malformed("quorum", "missing: how many of how many must agree")
        return None
    if quorum.n > quorum.m:
        raise _Malformed("quorum.n", f"{quorum.n} of {quorum.m} can never agree")
    if 2 * quorum.n <= quorum.m:
        raise _Malformed("quorum.n", f"{quorum.n} of {quorum.m} is not more than half: two answers could win")
    return quorum


def _replica_proof(payload: Payload) -> str:
    return ATTESTED if payload.proof == QUORUM else payload.proof


def _ai(payload: Payload) -> dict[str, object]:
    spec = _spec(AiSpec, payload.spec)
    if payload.proof == TRAPS:
        raise _Malformed("proof", "traps are runs of a circuit: only QUANTUM jobs have them")
    if (spec.prompt is None) == (spec.input is None):
        raise _Malformed("spec", "give either prompt or input")
    for name, value in spec.params.items():
        if not isinstance(value, SCALARS):
            raise _Malformed(f"spec.params.{name}", "must be an integer, text or a truth value: scale fractions")
        if isinstance(value, int) and abs(value) > U64_MAX:
            raise _Malformed(f"spec.params.{name}", "is beyond 64 bits")
    return {"model": spec.model, "precision": spec.precision}


def _quantum(payload: Payload) -> dict[str, object]:
    spec = _spec(QuantumSpec, payload.spec)
    if payload.proof == TRAPS and spec.trap_ppm == 0:
        raise _Malformed("spec.trap_ppm", "0: without traps there is nothing to prove by them")
    if payload.proof == TRAPS and spec.shots > TRAPPED_SHOTS_MAX:
        raise _Malformed("spec.shots", f"at most {TRAPPED_SHOTS_MAX} where they are proved by traps")
    return {"gates": sorted(spec.gates), "depth": spec.depth, "width": spec.width, "precision": spec.precision}


KIND_READERS: Final[dict[Kind, Callable[[Payload], dict[str, object]]]] = {Kind.AI: _ai, Kind.QUANTUM: _quantum}
"""A new kind is added here: its function reads the spec and returns what a provider must have."""


class _Malformed(Exception):
    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path, self.message = path, message


def _spec(kind: type[Any], value: dict[str, Any]) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as fault:
        path, message = _locate_fault(str(fault))
        raise _Malformed(f"spec{path.removeprefix('payload')}", message) from fault


_AT: Final = re.compile(r"^(?P<message>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>.*)`)?$", re.DOTALL)
_FIELD: Final = re.compile(r"Object (?P<fault>missing required|contains unknown) field `(?P<name>.*)`", re.DOTALL)
_FIELD_MESSAGES: Final = {"missing required": "missing", "contains unknown": "no such field"}


def _locate_fault(fault: str) -> tuple[str, str]:
    """A fault of the typed reader as the path of the field and a message."""
    match = _AT.match(fault)
    assert match is not None
    path, message = f"payload{match['path'] or ''}", match["message"]
    if (field := _FIELD.fullmatch(message)) is not None:
        return f"{path}.{field['name']:.80}", _FIELD_MESSAGES[field["fault"]]
    return path, f"a name in it: {message}" if match["key"] else message


def _payload_path(path: str) -> str:
    return "payload" if not path else f"payload.{path}".replace(".[", "[")


def _refuse_field(path: str, message: str) -> Refused:
    return Refused("JOB-003", f"{path}: {message}", name="InvalidParams")
