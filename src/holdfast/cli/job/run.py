"""`holdfast job run | wait | again`: submit a job, wait for it, write what its program wrote; the job's end is ours."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast.cli.exit_codes import INVALID_JOB_INPUT
from holdfast.cli.job.enqueue import MAX_FEE
from holdfast.cli.job.output import print_output
from holdfast.cli.job.payload import compute_spec, invalid_option, payload_from_file, payload_from_options
from holdfast.cli.job.show import JobArgument
from holdfast.cli.terminal.durations import parse_duration_ms
from holdfast.cli.terminal.labels import parse_labels
from holdfast.cli.terminal.node_client import call_node, find_job, patient_client
from holdfast.cli.terminal.options import Json, NodeAddress, on_node
from holdfast.cli.terminal.progress import ProgressLine
from holdfast.cli.terminal.reporting import refuse, report_errors, value_or_exit
from holdfast.cli.terminal.run_at import At, In, parse_run_at_ms
from holdfast.cli.terminal.tables import print_json, print_outcome
from holdfast.core.base.errors import Refused
from holdfast.core.job.input_ref import OCTETS

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.client.answers import JobReceipt, JobResult

STDIN: Final = "-"
WaitOption = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait for the job and write its output, or print its id.")
]
TimeoutOption = Annotated[str | None, typer.Option(help="How long to wait: 90s, 10m. [default: as long as it takes]")]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the output to this file. [default: stdout]")
]
CallerOption = Annotated[str | None, typer.Option(help="The account that submits it. [default: the key's account]")]


@on_node
def run(
    address: NodeAddress,
    runtime: Annotated[
        str | None, typer.Option(help="COMPUTE: which program, by the name that providers offer.")
    ] = None,
    arg: Annotated[list[str] | None, typer.Option(help="COMPUTE: an argument of it. May be repeated.")] = None,
    model: Annotated[str | None, typer.Option(help="AI: which model.")] = None,
    prompt: Annotated[str | None, typer.Option(help="AI: the prompt.")] = None,
    file: Annotated[Path | None, typer.Option(help="The whole payload as JSON instead of these options.")] = None,
    input_: Annotated[
        str | None, typer.Option("--input", metavar="FILE", help="The job's input; - is standard input.")
    ] = None,
    media_type: Annotated[str, typer.Option(help="What kind of bytes the input is.")] = OCTETS,
    label: Annotated[list[str] | None, typer.Option(help="Only providers with this label: gpu=a100.")] = None,
    max_fee: Annotated[int, typer.Option(min=1, help="What it may cost at most; reserved at once.")] = MAX_FEE,
    caller: CallerOption = None,
    ttl: Annotated[str | None, typer.Option(help="How long it may take: 90m, 12h. [default: its kind's]")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Your name for this request; repeated, it is the same job.")
    ] = None,
    at: At = None,
    in_: In = None,
    wait: WaitOption = True,
    timeout: TimeoutOption = None,
    output: OutputOption = None,
    as_json: Json = False,
) -> None:
    """Run a job: submit it, wait for it, write what its program wrote. The exit code says how the job ended.

    Interrupted, the job goes on: `holdfast job wait` continues. 0: it has an output, which was verified. 1: it failed,
    expired or was cancelled. 65: its input is invalid. 75: the node cannot be reached, or the time is over.
    """
    payload = value_or_exit(_payload(runtime, arg, model, prompt, file))
    if label:
        payload["labels"] = value_or_exit(parse_labels(label))
    if ttl is not None:
        payload["ttl_ms"] = parse_duration_ms("--ttl", ttl)
    timeout_s, not_before_ms = parse_timeout(timeout), parse_run_at_ms(at, in_)
    with report_errors(), patient_client(address) as client, _Input(input_) as given:
        receipt = client.enqueue(
            payload,
            max_fee,
            caller=caller,
            input=given,
            media_type=media_type,
            idempotency_key=idempotency_key,
            not_before_ms=not_before_ms,
        )
        finish(client, receipt, wait=wait, timeout_s=timeout_s, output=output, as_json=as_json)


@on_node
def wait(
    address: NodeAddress,
    task_id: JobArgument,
    timeout: TimeoutOption = None,
    output: OutputOption = None,
    as_json: Json = False,
) -> None:
    """Wait until a job has ended, and say how. With --output FILE its output is written, too; - is standard output."""
    whole_id, timeout_s = find_job(address, task_id), parse_timeout(timeout)
    with report_errors(), patient_client(address) as client:
        result = _wait_for(client, whole_id, timeout_s)
        if as_json:
            _print_result(client, result, output)
        elif output is None:
            print(f"{result.task_id}  {result.result_size} bytes  block {result.height_resolved}")
        else:
            print_output(client, result, None if str(output) == STDIN else output)


@on_node
def again(
    address: NodeAddress,
    task_id: JobArgument,
    max_fee: Annotated[int | None, typer.Option(min=1, help="What it may cost at most. [default: as before]")] = None,
    wait: WaitOption = True,
    timeout: TimeoutOption = None,
    output: OutputOption = None,
    as_json: Json = False,
) -> None:
    """Submit a job again as it was: the same payload and input as a new job, for the same account."""
    timeout_s = parse_timeout(timeout)
    view = call_node(address, "cap.getJob", task_id=task_id)
    if view.get("payload") is None:
        refuse(Refused("JOB-010", _PRIVATE, "use a key of its caller, or an operator's", "Forbidden"))
    fee, caller = max_fee or view["job"]["max_fee"], view["job"]["caller"]
    with report_errors(), patient_client(address) as client:
        receipt = client.enqueue(view["payload"], fee, caller=caller)
        finish(client, receipt, wait=wait, timeout_s=timeout_s, output=output, as_json=as_json)


# ------------------------------------------------------------------------------------------------ parts


_PRIVATE: Final = "only its caller and operators know the payload of a private job"


def finish(
    client: Client, receipt: JobReceipt, *, wait: bool, timeout_s: float | None, output: Path | None, as_json: bool
) -> None:
    """Print the job's id, or wait for it and write its output."""
    if not wait:
        print_outcome(receipt, receipt.task_id, as_json=as_json)
        return
    print(f"job {receipt.task_id}", file=sys.stderr)
    if as_json:
        _print_result(client, _wait_for(client, receipt, timeout_s), output)
        return
    print_output(client, _wait_for(client, receipt, timeout_s), output)


def _print_result(client: Client, result: JobResult, output: Path | None) -> None:
    """The result's record as JSON; its bytes only into a file, since standard output is taken."""
    if output is not None and str(output) != STDIN:
        print_output(client, result, output)
    print_json(result)


def _wait_for(client: Client, job: JobReceipt | str, timeout_s: float | None) -> JobResult:
    """The result; a job that ended without one ends this command, by its reason."""
    progress = ProgressLine("waiting")
    try:
        with closing(client.as_completed([job], timeout_s, progress=progress.show_text)) as outcomes:
            outcome = next(outcomes)
    finally:
        progress.end()
    if outcome.error is not None and "INVALID_INPUT" in outcome.error.message:
        print(f"holdfast: {outcome.error}", file=sys.stderr)
        raise typer.Exit(INVALID_JOB_INPUT)
    return outcome.unwrap()


class _Input:
    """The input that is named: a file, or standard input, which is kept in a file until it is uploaded."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._kept: Any = None

    def __enter__(self) -> Path | None:
        if self._name != STDIN:
            return None if self._name is None else Path(self._name)
        self._kept = NamedTemporaryFile(prefix="holdfast-input-")
        while part := sys.stdin.buffer.read(1 << 20):
            self._kept.write(part)
        self._kept.flush()
        return Path(self._kept.name)

    def __exit__(self, *_: object) -> None:
        if self._kept is not None:
            self._kept.close()


def parse_timeout(text: str | None) -> float | None:
    return None if text is None else parse_duration_ms("--timeout", text) / 1000


def _payload(
    runtime: str | None, args: list[str] | None, model: str | None, prompt: str | None, file: Path | None
) -> dict[str, Any] | Refused:
    if sum(given is not None for given in (runtime, model, file)) != 1:
        hint = "holdfast job run --runtime wc --input FILE"
        return invalid_option("--runtime, --model or --file: pass one of them", hint)
    if file is not None:
        return payload_from_file(file)
    ai = {name: text for name, text in (("model", model), ("prompt", prompt)) if text is not None}
    return payload_from_options(None, ai, compute_spec(runtime, args, {}))
