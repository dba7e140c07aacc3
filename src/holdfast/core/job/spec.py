"""What a job may ask for (JOB-003): typed specs per kind; a malformed one is refused with the path of the field."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec

from holdfast.core.canon import NotCanonical, canonical, decode
from holdfast.core.job.quorum import QUORUM, REPLICAS_MAX
from holdfast.core.refusal import Refused
from holdfast.core.values import U64_MAX, Kind

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**62)]
Millis = Annotated[int, msgspec.Meta(ge=1, le=365 * 24 * 3_600_000)]
Ppm = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
SCALARS: Final = (bool, int, str)
ATTESTED: Final = "attested"
TRAPS: Final = "traps"
TRAPPED_SHOTS_MAX: Final = 1_000_000
"""So many runs are looked at where they are proved by traps (PRF-002)."""
GATES_MAX: Final = 64
"""They are in memory while the job lives (ENG-007), so there cannot be any number of them."""


ProviderName = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Providers = Annotated[list[ProviderName], msgspec.Meta(max_length=64)]
"""By their ids. They are in memory while the job lives, too."""


class AiSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model, what it is given (a prompt, or a reference to an input), and parameters in integers."""

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


class Agreement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """LEA-009: how many providers do the work, and how many of them must come to the same."""

    n: Annotated[int, msgspec.Meta(ge=1, le=REPLICAS_MAX)]
    m: Annotated[int, msgspec.Meta(ge=1, le=REPLICAS_MAX)]


class Payload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a requester hands in; `spec` is its kind's."""

    kind: Kind
    spec: dict[str, Any]
    units: Count = 1
    """Units of work, as the provider's price counts them."""
    ttl_ms: Millis | None = None
    region: Name | None = None
    allow: Providers | None = None
    """Only these may run it; None: whoever fits (MAT-002)."""
    deny: Providers = []
    """These may not."""
    proof: Name = ATTESTED
    """The method by which the result is to be proved; with a quorum, that of each replica."""
    quorum: Agreement | None = None
    """n of m providers must come to the same (LEA-009)."""


class Ordered(Payload, frozen=True):
    """A payload as whoever does the work gets it."""

    raw: bytes = b""
    """The canonical bytes that it was read from."""


def ordered(raw: bytes) -> Ordered:
    """Canonical bytes of a payload, read again; raises where they are none."""
    payload = msgspec.convert(decode(raw), Payload)
    return Ordered(**msgspec.structs.asdict(payload), raw=raw)


class Asked(msgspec.Struct, frozen=True, gc=False):
    """A payload that was read: its canonical bytes and what the queue needs to know of it."""

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
    """How each replica is proved, where there are some."""


def read_payload(value: object) -> Asked | Refused:
    """JOB-003: a payload as its kind wants it, or the path of what is wrong with it."""
    try:
        raw = canonical(value)  # first: what is not text or not a number in our sense, no reader of types understands
        payload = msgspec.convert(value, Payload)
        needs = KINDS[payload.kind](payload)
        quorum = _quorum(payload)
    except msgspec.ValidationError as fault:
        return _bad(*_path_of(str(fault)))
    except NotCanonical as fault:
        return _bad(_payload(fault.path), fault.says)
    except _Malformed as fault:
        return _bad(f"payload.{fault.path}", fault.says)
    lists = {"allow": payload.allow, "deny": payload.deny or None}
    needs |= {"region": payload.region} | {name: sorted(set(some)) for name, some in lists.items() if some is not None}
    requirements = canonical({name: value for name, value in needs.items() if value is not None})
    proved = (payload.proof,) if quorum is None else (QUORUM, quorum.n, quorum.m, _replica_proof(payload))
    return Asked(payload.kind, raw, payload.units, payload.ttl_ms, requirements, *proved)


def _quorum(payload: Payload) -> Agreement | None:
    """LEA-009: more than half must agree, so that two answers never win both."""
    asked = payload.quorum
    if asked is None:
        if payload.proof == QUORUM:
            raise _Malformed("quorum", "missing: how many of how many must agree")
        return None
    if asked.n > asked.m:
        raise _Malformed("quorum.n", f"{asked.n} of {asked.m} can never agree")
    if 2 * asked.n <= asked.m:
        raise _Malformed("quorum.n", f"{asked.n} of {asked.m} is not more than half: two answers could win")
    return asked


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


KINDS: Final[dict[Kind, Callable[[Payload], dict[str, object]]]] = {Kind.AI: _ai, Kind.QUANTUM: _quantum}
"""A new kind plugs in here: it reads its spec and says what a provider must have."""


class _Malformed(Exception):
    def __init__(self, path: str, says: str) -> None:
        super().__init__(says)
        self.path, self.says = path, says


def _spec(kind: type[Any], value: dict[str, Any]) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as fault:
        path, says = _path_of(str(fault))
        raise _Malformed(f"spec{path.removeprefix('payload')}", says) from fault


_AT: Final = re.compile(r"^(?P<says>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>.*)`)?$", re.DOTALL)
_FIELD: Final = re.compile(r"Object (?P<fault>missing required|contains unknown) field `(?P<name>.*)`", re.DOTALL)
_SAYS: Final = {"missing required": "missing", "contains unknown": "no such field"}


def _path_of(fault: str) -> tuple[str, str]:
    """What the reader of the payload found, as the path of a field and what is wrong with it."""
    found = _AT.match(fault)
    assert found is not None
    path, says = f"payload{found['path'] or ''}", found["says"]
    if (field := _FIELD.fullmatch(says)) is not None:
        return f"{path}.{field['name']:.80}", _SAYS[field["fault"]]
    return path, f"a name in it: {says}" if found["key"] else says


def _payload(path: str) -> str:
    return "payload" if not path else f"payload.{path}".replace(".[", "[")


def _bad(path: str, says: str) -> Refused:
    return Refused("JOB-003", f"{path}: {says}", name="InvalidParams")
