"""`holdfast compute NAME`: recompute any id offline, from one JSON object (CMP-001).

An entry of `FORMULAS` is one name: the fields it reads, the fields it prints, and the core function that it calls.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, NoReturn

import typer

from holdfast.cli import make_app
from holdfast.cli.compute import described_match, item_input, match_input, notice_input, readers
from holdfast.cli.compute.strict_json import INPUT, InputFault, InvalidInput, read_object
from holdfast.core import job, lease, match, proof, result
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Kind, Tier
from holdfast.core.policy import PriorityPolicy, RetryPolicy
from holdfast.core.queue import priority, retry
from holdfast.lightclient import da

FAULTS_SHOWN_MAX: Final = 20
FIELDS_SHOWN_MAX: Final = 6


class Formula(NamedTuple):
    """One thing that can be recomputed. `function` is called with the fields it reads, by their names."""

    rule: str
    reads: Mapping[str, readers.FieldReader]
    prints: tuple[str, ...]
    function: Callable[..., object]


_U64, _HEX = readers.integer(), readers.hex_bytes()
_VERSION = readers.optional(readers.integer(1, 2), 1)
"""The version of the domain tag (CAN-003)."""

RETRY_FIELDS: Final = dict.fromkeys(("base_ai_ms", "base_quantum_ms", "cap_ms"), readers.integer(least=1)) | {
    "backoff_factor": readers.integer(1, 100)
}
PRIORITY_FIELDS: Final = {
    **dict.fromkeys(("w_fee", "w_age", "w_size", "w_tier"), _U64),
    **dict.fromkeys(("fee_ref", "age_ref_ms", "size_ref"), readers.integer(least=1)),
}


def _digest_and_root(commitment: da.DaCommitment) -> tuple[bytes, bytes]:
    return commitment.digest, commitment.root


FORMULAS: Final = {
    "task-id": Formula(
        "JOB-001",
        {
            "chain_id": _U64,
            "height": _U64,
            "tx_hash": _HEX,
            "caller": readers.hex_bytes(1, 64),
            "payload": readers.json_value(),
            "version": _VERSION,
        },
        ("task_id",),
        job.task_id,
    ),
    "seed": Formula(
        "MAT-001",
        {"chain_id": _U64, "epoch_id": _U64, "block_height": _U64, "beacon": _HEX},
        ("seed",),
        match.seed,
    ),
    "shuffle": Formula("MAT-003", {"seed": _HEX, "providers": readers.array_of(_HEX)}, ("order",), match.shuffle),
    "lease-id": Formula(
        "LEA-001",
        {"job_id": _HEX, "provider_id": _HEX, "attempt": _U64, "seed": _HEX},
        ("lease_id",),
        lease.lease_id,
    ),
    "priority": Formula(
        "PRI-002",
        {
            "max_fee": _U64,
            "size_bytes": _U64,
            "tier": readers.one_of(Tier),
            "enqueue_ts_ms": _U64,
            "policy": readers.optional_fields(PriorityPolicy, PRIORITY_FIELDS),
        },
        ("key",),
        priority.sort_priority,
    ),
    "backoff": Formula(
        "RTY-002",
        {
            "kind": readers.one_of(Kind),
            "job_id": _HEX,
            "failure": _U64,
            "policy": readers.optional_fields(RetryPolicy, RETRY_FIELDS),
        },
        ("delay_ms",),
        retry.delay_ms,
    ),
    "match": Formula(
        "MAT-003",
        {
            "seed": _HEX,
            "counter": _U64,
            "policy": match_input.match_policy(),
            "jobs": match_input.jobs(),
            "providers": match_input.providers(),
        },
        ("assignments",),
        described_match.assignments,
    ),
    "result-digest": Formula(
        "RES-004", {"bytes": _HEX}, ("result_digest",), lambda **fields: result.result_digest(fields["bytes"])
    ),
    "nullifier": Formula(
        "PRF-001",
        {
            "type": readers.number_of(proof.ProofType),
            "window": _U64,
            "body": readers.json_value(),
            "version": _VERSION,
        },
        ("nullifier",),
        proof.nullifier,
    ),
    "da-commitment": Formula(
        "DA-001",
        {"namespace": readers.hex_bytes(8, 8), "bytes": readers.hex_bytes(1)},
        ("da_commitment", "root"),
        lambda **fields: _digest_and_root(da.commit(fields["namespace"], fields["bytes"])),
    ),
    "notice-root": Formula(
        "NTC-001",
        {
            "version": readers.integer(0, 1),
            "height": _U64,
            "round": readers.integer(-1, 2**31 - 1),
            "blob_index": readers.integer(0, 2**32 - 1),
            "kzg_commitment": readers.hex_bytes(48, 48),
            "blob_keccak": readers.hex_bytes(32, 32),
            "provider_id": readers.text(),
            "locator": readers.text(),
            "archived_by": readers.hex_bytes(20, 20),
            "archived_at": _U64,
            "chain_id": readers.optional(_U64, None),
            "versioned_hash": readers.optional(readers.hex_bytes(32, 32), None),
        },
        ("root",),
        notice_input.root,
    ),
    "dataitem-id": Formula(
        "ARC-004",
        {"seed": readers.hex_bytes(32, 32), "tags": item_input.tags(), "bytes": _HEX},
        ("id", "owner", "length"),
        lambda **fields: item_input.dataitem(seed=fields["seed"], tags=fields["tags"], data=fields["bytes"]),
    ),
}

# ------------------------------------------------------------------------------------------------ evaluation


def evaluate(name: str, raw: bytes) -> dict[str, object]:
    """What the formula of that name prints for this input; raises InvalidInput with every fault in it."""
    formula = FORMULAS[name]
    outcome = formula.function(**_fields(formula, raw))
    values = outcome if isinstance(outcome, tuple) else (outcome,)
    return {field: _to_json(value) for field, value in zip(formula.prints, values, strict=True)}


def _fields(formula: Formula, raw: bytes) -> dict[str, object]:
    document, faults_by_field = read_object(raw)
    faults = [fault for field in faults_by_field for fault in faults_by_field[field]]
    expected = {field: reader for field, reader in formula.reads.items() if field not in faults_by_field}
    unknown = [field for field in document if field not in formula.reads]
    try:
        values = readers.read_all(
            (
                reader if field in document else readers.default_or_missing(reader, field, unknown),
                document.get(field),
                field,
            )
            for field, reader in expected.items()
        )
    except InvalidInput as fault:
        faults += fault.faults
    if faults:
        raise InvalidInput(*faults)
    return dict(zip(expected, values, strict=True))


def _to_json(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    return [_to_json(item) for item in value] if isinstance(value, list) else value


# ------------------------------------------------------------------------------------------------ the verb

app = make_app(no_args_is_help=True)


@app.callback(subcommand_metavar="NAME")
def _compute() -> None:
    """Recompute an id, an order or a delay offline: one JSON object on standard input, one on standard output.

    Bytes are lower-case hex without 0x. Integers are 0 to 2^64-1, inside payload and body from -2^64. Floats, duplicate
    keys and lone surrogates are refused. Every faulty field is named on standard error, with exit code 2 (CMP-001).

    \b
    echo '{"bytes": "00ff"}' | holdfast compute result-digest
    """


def summary_of(formula: Formula) -> str:
    """One line: what it reads, the first fields of many, and what it prints."""
    reads = list(formula.reads)
    shown = reads if len(reads) <= FIELDS_SHOWN_MAX else [*reads[: FIELDS_SHOWN_MAX - 1], "…"]
    return f"{', '.join(shown)} → {', '.join(formula.prints)}"


def _help(formula: Formula) -> str:
    rows = [f"  {field}: {reader.description}" for field, reader in formula.reads.items()]
    return "\n".join(
        [f"{formula.rule}. Reads one JSON object with", "", "\b", *rows, "", f"and prints {', '.join(formula.prints)}."]
    )


def _command(name: str) -> Callable[[], None]:
    def run() -> None:
        try:
            answer = evaluate(name, _input())
        except InvalidInput as fault:
            _refuse(name, fault.faults)
        print(json.dumps(answer), flush=True)

    return run


def _example(name: str) -> str:
    """Short where the input is short."""
    inputs = {"result-digest": """'{"bytes": "00ff"}'"""}
    return (
        f"echo {inputs[name]} | holdfast compute {name}" if name in inputs else f"holdfast compute {name} < input.json"
    )


# A name is a command, not an argument: so it has its own help, and typer starts twice as fast.
for _name, _formula in FORMULAS.items():
    app.command(
        _name,
        example=_example(_name),
        help=_help(_formula),
        short_help=summary_of(_formula),
    )(_command(_name))


def _input() -> bytes:
    if sys.stdin is None:
        raise InvalidInput(InputFault(INPUT, "closed, expected one JSON object"))
    if sys.stdin.isatty():
        print("reading one JSON object; Ctrl-D on an empty line ends it", file=sys.stderr)
    try:
        return sys.stdin.buffer.read()
    except OSError as fault:
        raise InvalidInput(InputFault(INPUT, f"cannot be read: {fault.strerror}")) from None


def _refuse(name: str, faults: list[InputFault]) -> NoReturn:
    prefix = f"holdfast compute {name}"
    for fault in faults[:FAULTS_SHOWN_MAX]:
        print(f"{prefix}: {Refused('CMP-001', f'{fault.path}: {fault.message}', fault.hint)}", file=sys.stderr)
    if len(faults) > FAULTS_SHOWN_MAX:
        print(f"{prefix}: and {len(faults) - FAULTS_SHOWN_MAX} more", file=sys.stderr)
    raise typer.Exit(2)
