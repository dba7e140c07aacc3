"""The payload of a job (JOB-003): a typed spec per kind; a malformed one is refused with the path of the field."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, cast

import msgspec

from holdfast.core.base.canonical import NotCanonical, canonical, decode
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import PPM, U64_MAX, Kind, ProviderId
from holdfast.core.job.input_ref import InputRef
from holdfast.core.job.quorum import QUORUM, REPLICAS_MAX
from holdfast.core.policy import ProofPolicy, Visibility

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**62)]
Millis = Annotated[int, msgspec.Meta(ge=1, le=365 * 24 * 3_600_000)]
Ppm = Annotated[int, msgspec.Meta(ge=0, le=PPM)]
SCALARS: Final = (bool, int, str)
ATTESTED: Final = "attested"
TRAPS: Final = "traps"
RECOMPUTE: Final = "recompute"
CIRCUIT: Final = "circuit"
"""The name of the work of all QUANTUM jobs."""
TRAPPED_SHOTS_MAX: Final = 1_000_000
"""The most runs of a job that is proved by traps (PRF-002)."""
GATES_MAX: Final = 64
"""Gates are in memory while the job lives (ENG-007), so their number is bounded."""


ARGS_MAX: Final = 256
RUN_MS_MAX: Final = 7 * 24 * 3_600_000
RESOURCES: Final = ("cpu_milli", "memory_mb", "gpus")
"""What a COMPUTE job may need, and a provider has for each of its slots."""

Resource = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Argument = Annotated[str, msgspec.Meta(max_length=4_096)]
ProviderName = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Metric = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
METRICS_MAX: Final = 16
LABELS_MAX: Final = 16
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


class Resources(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a COMPUTE job needs of the slot that runs it; nothing is summed over slots."""

    cpu_milli: Resource = 0
    """Thousandths of a processor."""
    memory_mb: Resource = 0
    gpus: Resource = 0


class ComputeSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program that providers offer by name, its arguments, and what it needs."""

    runtime: Name
    args: Annotated[list[Argument], msgspec.Meta(max_length=ARGS_MAX)] = []
    resources: Resources = Resources()
    precision: Name | None = None


class QuorumSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """LEA-009: n of m providers must return the same output."""

    n: Annotated[int, msgspec.Meta(ge=1, le=REPLICAS_MAX)]
    m: Annotated[int, msgspec.Meta(ge=1, le=REPLICAS_MAX)]


class MetricBounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a metric of the proof must be, at least or at most."""

    min: Metric | None = None
    max: Metric | None = None


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
    visibility: Visibility | None = None
    """Who may read it (JOB-010); None: as policy says."""

    metrics: Annotated[dict[Name, MetricBounds], msgspec.Meta(max_length=METRICS_MAX)] = {}
    """PRV-005: bounds for metrics that the proof names, such as `took_ms`."""
    labels: Annotated[dict[Name, Name], msgspec.Meta(max_length=LABELS_MAX)] = {}
    """Only providers that declare each of these may run it, such as `gpu: a100` (MAT-002)."""
    run_ms_max: Annotated[int, msgspec.Meta(ge=1, le=RUN_MS_MAX)] | None = None
    """How long one attempt may take: long work may renew its lease until then (LEA-004)."""
    input: InputRef | None = None
    """Bytes that were sent with the job or uploaded before; they are not part of what is hashed."""


class WorkPayload(Payload, frozen=True):
    """A payload as the provider gets it."""

    raw: bytes = b""
    """The canonical bytes that it was read from."""
    input_file: str = ""
    """Where the bytes of its input are, on the provider's machine; empty where it has none."""


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
    visibility: Visibility | None = None
    input: InputRef | None = None
    run_ms_max: int = 0


def read_payload(value: object) -> ParsedPayload | Refused:
    """JOB-003: the parsed payload, or a refusal with the path of the fault."""
    try:
        raw = canonical(value)  # first: it refuses values such as floats, which the typed reader would accept
        payload = msgspec.convert(value, Payload)
        needs = KIND_READERS[payload.kind](payload)
        proof, metrics = _proof(payload), _metrics(payload)
    except msgspec.ValidationError as fault:
        return _refuse_field(*_locate_fault(str(fault)))
    except NotCanonical as fault:
        return _refuse_field(_payload_path(fault.path), fault.message)
    except _Malformed as fault:
        return _refuse_field(f"payload.{fault.path}", fault.message)
    lists = {"allow": payload.allow, "deny": payload.deny or None}
    needs |= {"region": payload.region, "metrics": metrics or None, "labels": payload.labels or None}
    needs |= {name: sorted(set(ids)) for name, ids in lists.items() if ids is not None}
    return ParsedPayload(
        kind=payload.kind,
        raw=raw,
        units=payload.units,
        ttl_ms=payload.ttl_ms,
        requirements=canonical({name: value for name, value in needs.items() if value is not None}),
        visibility=payload.visibility,
        input=payload.input,
        run_ms_max=payload.run_ms_max or 0,
        **proof,
    )


def why_not_provable(parsed: ParsedPayload, policy: ProofPolicy) -> Refused | None:
    """JOB-011: a job whose result no verifier of this network can accept is not admitted."""
    method = parsed.replica_proof or parsed.proof
    if method not in policy.methods:
        return _refuse_proof(f"no verifier {method!r}", f"there are {', '.join((*policy.methods, QUORUM))}")
    if method != RECOMPUTE:
        return None
    if parsed.input is not None:
        return _refuse_proof("the node does not compute jobs with an input again", "pass a small one in the spec")
    needs = cast(dict[str, object], decode(parsed.requirements))
    work = f"{parsed.kind}:{work_name(needs)}"
    if work not in policy.recomputers:
        return _refuse_proof(
            f"{work} cannot be computed again here", f"recompute knows {', '.join(policy.recomputers)}"
        )
    return None


def work_name(needs: Mapping[str, Any], default: str = CIRCUIT) -> str:
    """The name of the work that is required: a model or a runtime; circuits have one name."""
    return str(needs.get("model", needs.get("runtime", default)))


def _refuse_proof(message: str, hint: str) -> Refused:
    return Refused("JOB-011", f"payload.proof: {message}", hint, "InvalidParams")


def _proof(payload: Payload) -> dict[str, Any]:
    """How the result is proved. LEA-009: more than half must agree, so that two outputs cannot both win."""
    quorum = payload.quorum
    if quorum is None:
        if payload.proof == QUORUM:
            raise _Malformed("quorum", "missing: how many of how many must agree")
        return {"proof": payload.proof}
    if quorum.n > quorum.m:
        raise _Malformed("quorum.n", f"{quorum.n} of {quorum.m} can never agree")
    if 2 * quorum.n <= quorum.m:
        raise _Malformed("quorum.n", f"{quorum.n} of {quorum.m} is not more than half: two answers could win")
    replica_proof = ATTESTED if payload.proof == QUORUM else payload.proof
    return {"proof": QUORUM, "quorum_n": quorum.n, "quorum_m": quorum.m, "replica_proof": replica_proof}


def _metrics(payload: Payload) -> dict[str, dict[str, int]]:
    """The bounds that are set, as they are kept with the job's requirements."""
    for name, bounds in payload.metrics.items():
        if bounds.min is None and bounds.max is None:
            raise _Malformed(f"metrics.{name}", "give min, max or both")
        if bounds.min is not None and bounds.max is not None and bounds.min > bounds.max:
            raise _Malformed(f"metrics.{name}", f"no number is at least {bounds.min} and at most {bounds.max}")
    return msgspec.to_builtins(payload.metrics)  # type: ignore[no-any-return]


def has_metrics(requirements: bytes) -> bool:
    """Whether a job may ask for metrics; False for most jobs, without decoding anything."""
    return b"metrics" in requirements


def why_metrics_unmet(requirements: bytes, metrics: dict[str, int | str]) -> str | None:
    """PRV-005: which bound of the job the metrics of a proof do not keep; None where they keep all."""
    if not has_metrics(requirements):
        return None
    bounds: dict[str, dict[str, int]] = cast(dict[str, Any], decode(requirements)).get("metrics", {})
    for name, bound in bounds.items():
        value = metrics.get(name)
        if type(value) is not int:
            return f"{name}: the proof does not have it"
        if value < bound.get("min", value) or value > bound.get("max", value):
            words = {"min": "at least", "max": "at most"}
            return f"{name}: {value}, not {' and '.join(f'{words[kind]} {bound[kind]}' for kind in sorted(bound))}"
    return None


TRAPS_ARE_QUANTUM: Final = "traps are runs of a circuit: only QUANTUM jobs have them"


def _ai(payload: Payload) -> dict[str, object]:
    spec = _spec(AiSpec, payload.spec)
    if payload.proof == TRAPS:
        raise _Malformed("proof", TRAPS_ARE_QUANTUM)
    if spec.prompt is not None and spec.input is not None:
        raise _Malformed("spec", "give either prompt or input")
    if spec.prompt is None and spec.input is None and payload.input is None:
        raise _Malformed("spec", "give either prompt or input, or bytes as the input of the job")
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


def _compute(payload: Payload) -> dict[str, object]:
    spec: ComputeSpec = _spec(ComputeSpec, payload.spec)
    if payload.proof == TRAPS:
        raise _Malformed("proof", TRAPS_ARE_QUANTUM)
    if any("\0" in argument for argument in spec.args):
        raise _Malformed("spec.args", "no argument of a program contains a NUL character")
    needs = {name: getattr(spec.resources, name) or None for name in RESOURCES}
    return {"runtime": spec.runtime, "precision": spec.precision} | needs


KIND_READERS: Final[dict[Kind, Callable[[Payload], dict[str, object]]]] = {
    Kind.AI: _ai,
    Kind.QUANTUM: _quantum,
    Kind.COMPUTE: _compute,
}
"""A new kind is added here: its function reads the spec and returns what a provider must have."""


def with_denied(requirements: bytes, provider_id: ProviderId) -> bytes:
    """The same requirements, of any provider but this one."""
    needs = cast(dict[str, Any], decode(requirements))
    return canonical(needs | {"deny": sorted({*needs.get("deny", ()), provider_id.hex()})})


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
