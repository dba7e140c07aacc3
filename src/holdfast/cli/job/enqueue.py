"""`holdfast job enqueue`: submit a job and print its receipt."""

from __future__ import annotations

import re
import secrets
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from holdfast.cli.job.payload import invalid_option, payload_from_file
from holdfast.cli.terminal.durations import parse_duration_ms
from holdfast.cli.terminal.node_client import NodeAddress, NodeSession, run_on_node
from holdfast.cli.terminal.options import Ca, Data, Json, TokenFile, Url
from holdfast.cli.terminal.reporting import value_or_exit
from holdfast.cli.terminal.tables import format_time, print_json, print_record
from holdfast.client import NodeUnreachable
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Kind

MAX_FEE: Final = 1_000


def enqueue(
    max_fee: Annotated[int, typer.Option(min=1, help="What it may cost at most; reserved at once.")] = MAX_FEE,
    caller: Annotated[
        str | None, typer.Option(help="The account that submits it. [default: the key's account]")
    ] = None,
    kind: Annotated[Kind, typer.Option(help="The kind of job.")] = Kind.AI,
    model: Annotated[str | None, typer.Option(help="AI: which model.")] = None,
    prompt: Annotated[str | None, typer.Option(help="AI: the prompt.")] = None,
    file: Annotated[
        Path | None, typer.Option(help="The whole payload as JSON instead of the options; - is standard input.")
    ] = None,
    units: Annotated[int | None, typer.Option(min=1, help="Units of work. [default: 1]")] = None,
    ttl: Annotated[str | None, typer.Option(help="How long it may take: 90m, 12h. [default: its kind's]")] = None,
    quorum: Annotated[
        str | None, typer.Option(metavar="N/M", help="N of M providers must return the same output: 2/3.")
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Your name for this request; repeated, it returns the first receipt.")
    ] = None,
    nonce: Annotated[int | None, typer.Option(min=0, help="Distinguishes equal jobs. [default: random]")] = None,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Submit a job. The receipt confirms that the queue has it durably and that its fee is reserved.

    With the node of this folder, --caller is required; over HTTP it is the account of the key.
    """
    payload = value_or_exit(_payload(kind, model, prompt, file))
    options = {
        "units": units,
        "ttl_ms": None if ttl is None else parse_duration_ms("--ttl", ttl),
        "quorum": value_or_exit(_quorum(quorum)),
    }
    payload |= {name: value for name, value in options.items() if value is not None}
    request_nonce = secrets.randbits(63) if nonce is None else nonce  # chosen here, so that a retry is the same request
    params = {"payload": payload, "max_fee": max_fee, "nonce": request_nonce, "idempotency_key": idempotency_key}

    async def submit(node: NodeSession) -> Any:
        try:
            return await node.call("cap.enqueue", **params, caller=caller)
        except NodeUnreachable:
            print(f"outcome unknown: retry with --nonce {request_nonce}", file=sys.stderr)
            raise

    receipt = run_on_node(NodeAddress(data, url, token_file, ca), submit)
    print_json(receipt) if as_json else _print_receipt(receipt)


def _payload(kind: Kind, model: str | None, prompt: str | None, file: Path | None) -> dict[str, Any] | Refused:
    if file is not None:
        if model is not None or prompt is not None:
            return invalid_option("--file: the payload is in the file", "do not pass --model and --prompt with it")
        return payload_from_file(file)
    if kind is not Kind.AI:
        hint = '{"kind": "QUANTUM", "spec": {"circuit": …, "shots": 1000, "width": 2, "depth": 3}}'
        return invalid_option(f"--file: a {kind} job is described in a file", hint)
    if model is None or prompt is None:
        return invalid_option("--model and --prompt: both are needed", "or --file with the whole payload")
    return {"kind": kind.value, "spec": {"model": model, "prompt": prompt}}


def _quorum(text: str | None) -> dict[str, int] | Refused | None:
    """LEA-009: two numbers; the node checks their range."""
    if text is None:
        return None
    parts = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
    if parts is None:
        hint = "2/3: 2 of 3 providers must return the same output"
        return invalid_option(f"--quorum: {text!r:.40} is not N/M", hint)
    return {"n": int(parts[1]), "m": int(parts[2])}


def _print_receipt(receipt: dict[str, Any]) -> None:
    record = dict(receipt) | {
        "enqueued": format_time(receipt["enqueue_ms"]),
        "expires": format_time(receipt["expires_ms"]),
    }
    for name in ("enqueue_ms", "expires_ms", "is_repeat"):
        record.pop(name)
    print_record(record)
    if receipt["is_repeat"]:
        print("the queue already had this job: this is its first receipt", file=sys.stderr)
