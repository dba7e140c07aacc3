"""`holdfast job enqueue`: submit a job and print its receipt."""

from __future__ import annotations

import re
import secrets
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from holdfast.cli.job.payload import (
    compute_spec,
    invalid_option,
    payload_from_file,
    payload_from_options,
    read_input,
)
from holdfast.cli.terminal.durations import parse_duration_ms
from holdfast.cli.terminal.node_client import NodeSession, run_on_node
from holdfast.cli.terminal.options import Json, NodeAddress, on_node
from holdfast.cli.terminal.reporting import refuse, value_or_exit
from holdfast.cli.terminal.run_at import At, In, parse_run_at_ms
from holdfast.cli.terminal.tables import format_time, print_json, print_record
from holdfast.client import NodeUnreachable
from holdfast.client.job_lines import NONCE_MAX
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Kind

MAX_FEE: Final = 1_000


@on_node
def enqueue(
    address: NodeAddress,
    max_fee: Annotated[int, typer.Option(min=1, help="What it may cost at most; reserved at once.")] = MAX_FEE,
    caller: Annotated[
        str | None, typer.Option(help="The account that submits it. [default: the key's account]")
    ] = None,
    kind: Annotated[Kind | None, typer.Option(help="The kind of job. [default: of the options]")] = None,
    model: Annotated[str | None, typer.Option(help="AI: which model.")] = None,
    prompt: Annotated[str | None, typer.Option(help="AI: the prompt.")] = None,
    runtime: Annotated[str | None, typer.Option(help="COMPUTE: which program, by the name providers offer.")] = None,
    arg: Annotated[list[str] | None, typer.Option(help="COMPUTE: an argument of it. May be repeated.")] = None,
    cpu_milli: Annotated[int, typer.Option(min=0, help="COMPUTE: thousandths of a processor it needs.")] = 0,
    memory_mb: Annotated[int, typer.Option(min=0, help="COMPUTE: memory it needs.")] = 0,
    gpus: Annotated[int, typer.Option(min=0, help="COMPUTE: GPUs it needs.")] = 0,
    input_file: Annotated[
        Path | None, typer.Option("--input", help="A file with the input, at most 64 KiB; - is standard input.")
    ] = None,
    media_type: Annotated[str | None, typer.Option(help="The media type of --input.")] = None,
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
    at: At = None,
    in_: In = None,
    as_json: Json = False,
) -> None:
    """Submit a job. The receipt confirms that the queue has it durably and that its fee is reserved.

    With the node of this folder, --caller is required; over HTTP it is the account of the key.
    """
    payload, encoded = _described(
        kind,
        {"model": model, "prompt": prompt},
        compute_spec(runtime, arg, {"cpu_milli": cpu_milli, "memory_mb": memory_mb, "gpus": gpus}),
        file,
        (input_file, media_type),
    )
    ttl_ms = None if ttl is None else parse_duration_ms("--ttl", ttl)
    options = {"units": units, "ttl_ms": ttl_ms, "quorum": value_or_exit(_quorum(quorum))}
    payload |= {name: value for name, value in options.items() if value is not None}
    # Chosen here, so that a retry is the same request.
    request_nonce = secrets.randbelow(NONCE_MAX) if nonce is None else nonce
    params: dict[str, Any] = {"input": encoded} if encoded is not None else {}
    params |= {"payload": payload, "max_fee": max_fee, "nonce": request_nonce, "idempotency_key": idempotency_key}
    params |= {"caller": caller, "not_before_ms": parse_run_at_ms(at, in_)}

    receipt = _submit(address, params)
    print_json(receipt) if as_json else _print_receipt(receipt)


def _submit(address: NodeAddress, params: dict[str, Any]) -> Any:
    async def submit(node: NodeSession) -> Any:
        try:
            return await node.call("cap.enqueue", **params)
        except NodeUnreachable:
            print(f"outcome unknown: retry with --nonce {params['nonce']}", file=sys.stderr)
            raise

    return run_on_node(address, submit)


def _described(
    kind: Kind | None,
    ai: dict[str, str | None],
    compute: dict[str, Any],
    file: Path | None,
    input_: tuple[Path | None, str | None],
) -> tuple[dict[str, Any], str | None]:
    """The payload that the options describe, and its input as base64; or exit with what is wrong."""
    given = {name: text for name, text in ai.items() if text is not None}
    if file is not None and (given or compute):
        hint = "do not pass --model, --prompt or --runtime with it"
        refuse(invalid_option("--file: the payload is in the file", hint))
    payload = value_or_exit(payload_from_options(kind, given, compute) if file is None else payload_from_file(file))
    path, media_type = input_
    encoded = None if path is None else value_or_exit(read_input(path))
    if media_type is not None and encoded is not None:
        payload["input"] = {"media_type": media_type}
    return payload, encoded


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
    if receipt["not_before_ms"]:
        record["waits until"] = format_time(receipt["not_before_ms"])
    for name in ("enqueue_ms", "expires_ms", "is_repeat", "not_before_ms"):
        record.pop(name)
    print_record(record)
    if receipt["is_repeat"]:
        print("the queue already had this job: this is its first receipt", file=sys.stderr)
