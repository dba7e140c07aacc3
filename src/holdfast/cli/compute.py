"""`holdfast compute NAME`: anybody recomputes any id, offline, from one JSON object (CMP-001).

One line of `FORMULAS` is one name: what it reads, what it prints, and the function of the core that it is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, NoReturn

import typer

from holdfast.cli import Command, verb, worlds
from holdfast.cli import readers as read
from holdfast.cli.strict_json import INPUT, Fault, Faulty, read_object
from holdfast.core import da, job, lease, match, priority, proof, result, retry
from holdfast.core.match import offline
from holdfast.core.policy import PriorityPolicy, RetryPolicy
from holdfast.core.refusal import Refused
from holdfast.core.values import Kind, Tier

FAULTS_SHOWN_MAX: Final = 20


class Formula(NamedTuple):
    """One thing that can be recomputed; `of` takes the fields it reads by their names."""

    rule: str
    reads: Mapping[str, read.Reader]
    prints: tuple[str, ...]
    of: Callable[..., object]


_U64, _HEX = read.integer(), read.hex_bytes()
_VERSION = read.optional(read.integer(1, 2), 1)
"""Of the domain tag (CAN-003)."""

PRIORITY_KNOBS: Final = {
    **dict.fromkeys(("w_fee", "w_age", "w_size", "w_tier"), _U64),
    **dict.fromkeys(("fee_ref", "age_ref_ms", "size_ref"), read.integer(least=1)),
}


def _pinned(pinned: da.Pinned) -> tuple[bytes, bytes]:
    return pinned.commitment, pinned.root


FORMULAS: Final = {
    "task-id": Formula(
        "JOB-001",
        {
            "chain_id": _U64,
            "height": _U64,
            "tx_hash": _HEX,
            "caller": read.hex_bytes(1, 64),
            "payload": read.json_value(),
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
    "shuffle": Formula("MAT-003", {"seed": _HEX, "providers": read.each(_HEX)}, ("order",), match.shuffle),
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
            "tier": read.one_of(Tier),
            "enqueue_ts_ms": _U64,
            "policy": read.knobs(PriorityPolicy, PRIORITY_KNOBS),
        },
        ("key",),
        priority.key,
    ),
    "backoff": Formula(
        "RTY-002",
        {"kind": read.one_of(Kind), "job_id": _HEX, "failure": _U64},
        ("delay_ms",),
        partial(retry.delay_ms, policy=RetryPolicy()),
    ),
    "match": Formula(
        "MAT-003",
        {
            "seed": _HEX,
            "counter": _U64,
            "policy": worlds.knobs(),
            "jobs": worlds.jobs(),
            "providers": worlds.providers(),
        },
        ("assignments",),
        offline.assignments,
    ),
    "result-digest": Formula(
        "RES-004", {"bytes": _HEX}, ("result_digest",), lambda **fields: result.result_digest(fields["bytes"])
    ),
    "nullifier": Formula(
        "PRF-001",
        {
            "type": read.number_of(proof.ProofType),
            "window": _U64,
            "body": read.json_value(),
            "version": _VERSION,
        },
        ("nullifier",),
        proof.nullifier,
    ),
    "da-commitment": Formula(
        "DA-001",
        {"namespace": read.hex_bytes(8, 8), "bytes": read.hex_bytes(1)},
        ("da_commitment", "root"),
        lambda **fields: _pinned(da.pin(fields["namespace"], fields["bytes"])),
    ),
}

# ------------------------------------------------------------------------------------------------ from bytes to answer


def answer(name: str, raw: bytes) -> dict[str, object]:
    """What the formula of that name prints for this input; Faulty with every fault in it."""
    formula = FORMULAS[name]
    found = formula.of(**_fields(formula, raw))
    values = found if isinstance(found, tuple) else (found,)
    return {field: _shown(value) for field, value in zip(formula.prints, values, strict=True)}


def _fields(formula: Formula, raw: bytes) -> dict[str, object]:
    found, inside = read_object(raw)
    faults = [fault for field in inside for fault in inside[field]]
    asked = {field: reader for field, reader in formula.reads.items() if field not in inside}
    strangers = [field for field in found if field not in formula.reads]
    try:
        values = read.gather(
            (reader if field in found else read.absent(reader, strangers), found.get(field), field)
            for field, reader in asked.items()
        )
    except Faulty as fault:
        faults += fault.faults
    if faults:
        raise Faulty(*faults)
    return dict(zip(asked, values, strict=True))


def _shown(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    return [_shown(one) for one in value] if isinstance(value, list) else value


# ------------------------------------------------------------------------------------------------ the verb

app = verb(no_args_is_help=True)


@app.callback(subcommand_metavar="NAME")
def _compute() -> None:
    """Recompute an id, an order or a delay offline: one JSON object on standard input, one on standard output.

    Bytes are lower-case hex without 0x. Integers are 0 to 2^64-1, inside payload and body from -2^64. Floats, duplicate
    keys and lone surrogates are refused. Every faulty field is named on standard error, with exit code 2 (CMP-001).

    \b
    echo '{"bytes": "00ff"}' | holdfast compute result-digest
    """


def _help(formula: Formula) -> str:
    rows = [f"  {field}: {reader.says}" for field, reader in formula.reads.items()]
    return "\n".join(
        [f"{formula.rule}. Reads one JSON object with", "", "\b", *rows, "", f"and prints {', '.join(formula.prints)}."]
    )


def _command(name: str) -> Callable[[], None]:
    def run() -> None:
        try:
            shown = answer(name, _input())
        except Faulty as fault:
            _refuse(name, fault.faults)
        print(json.dumps(shown), flush=True)

    return run


# A name is a command of its own, not an argument: so it has its own help, and typer starts twice as fast.
for _name, _formula in FORMULAS.items():
    app.command(
        _name,
        cls=Command,
        help=_help(_formula),
        short_help=f"{', '.join(_formula.reads)} → {', '.join(_formula.prints)}",
    )(_command(_name))


def _input() -> bytes:
    if sys.stdin is None:
        raise Faulty(Fault(INPUT, "closed, expected one JSON object"))
    if sys.stdin.isatty():
        print("reading one JSON object; Ctrl-D on an empty line ends it", file=sys.stderr)
    try:
        return sys.stdin.buffer.read()
    except OSError as fault:
        raise Faulty(Fault(INPUT, f"cannot be read: {fault.strerror}")) from None


def _refuse(name: str, faults: list[Fault]) -> NoReturn:
    who = f"holdfast compute {name}"
    for fault in faults[:FAULTS_SHOWN_MAX]:
        print(f"{who}: {Refused('CMP-001', f'{fault.path}: {fault.says}', fault.hint)}", file=sys.stderr)
    if len(faults) > FAULTS_SHOWN_MAX:
        print(f"{who}: and {len(faults) - FAULTS_SHOWN_MAX} more", file=sys.stderr)
    raise typer.Exit(2)
