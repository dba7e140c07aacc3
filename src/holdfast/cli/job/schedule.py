"""`holdfast job schedule`: enqueue a job again and again, by a cron expression or at an interval (JOB-014)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli import make_app
from holdfast.cli.job.enqueue import MAX_FEE
from holdfast.cli.job.payload import compute_spec, invalid_option, payload_from_file, payload_from_options
from holdfast.cli.terminal.durations import parse_duration_ms
from holdfast.cli.terminal.labels import parse_labels
from holdfast.cli.terminal.node_client import blocking_client, call_node
from holdfast.cli.terminal.options import AfterEvent, Json, Limit, NodeAddress, OldestFirst, Wide, on_node
from holdfast.cli.terminal.reporting import report_errors, value_or_exit
from holdfast.cli.terminal.run_at import parse_time_ms
from holdfast.cli.terminal.tables import format_time, print_json, print_more, print_record, print_table, repeat_note
from holdfast.core.base.errors import Refused
from holdfast.core.job.input_ref import OCTETS
from holdfast.core.schedule.model import ScheduleState

app = make_app(no_args_is_help=True, help="Enqueue a job again and again: add, list, show, pause, resume, remove.")
ScheduleArgument = Annotated[str, typer.Argument(metavar="SCHEDULE", help="The schedule's name or id.")]
CallerOption = Annotated[
    str | None, typer.Option(help="The account whose schedule it is. [default: the key's account]")
]


@app.command(
    example="holdfast job schedule add nightly --cron '0 3 * * *' --runtime wc --input notes.txt --caller alice"
)
@on_node
def add(
    address: NodeAddress,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name of your own for it.")],
    cron: Annotated[str, typer.Option(metavar="CRON", help="When: '0 3 * * mon-fri', '*/15 * * * *', @daily.")] = "",
    every: Annotated[str | None, typer.Option(metavar="DURATION", help="When, instead of --cron: 15m, 12h.")] = None,
    offset: Annotated[str, typer.Option(metavar="±HH:MM", help="The zone of --cron, from UTC: +02:00.")] = "+00:00",
    runs: Annotated[int | None, typer.Option(min=1, help="End after this many jobs.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Do not fire later: 2026-12-31T23:59Z.")] = None,
    runtime: Annotated[str | None, typer.Option(help="COMPUTE: which program, by the name providers offer.")] = None,
    arg: Annotated[list[str] | None, typer.Option(help="COMPUTE: an argument of it. May be repeated.")] = None,
    model: Annotated[str | None, typer.Option(help="AI: which model.")] = None,
    prompt: Annotated[str | None, typer.Option(help="AI: the prompt.")] = None,
    file: Annotated[Path | None, typer.Option(help="The whole payload as JSON instead of these options.")] = None,
    input_: Annotated[Path | None, typer.Option("--input", metavar="FILE", help="The input of each job.")] = None,
    media_type: Annotated[str, typer.Option(help="What kind of bytes the input is.")] = OCTETS,
    label: Annotated[list[str] | None, typer.Option(help="Only providers with this label: gpu=a100.")] = None,
    ttl: Annotated[str | None, typer.Option(help="How long each may take: 90m, 12h. [default: its kind's]")] = None,
    max_fee: Annotated[int, typer.Option(min=1, help="What each may cost at most; reserved when it fires.")] = MAX_FEE,
    caller: CallerOption = None,
    as_json: Json = False,
) -> None:
    """Add a schedule. Each firing enqueues one job and reserves its fee; what an outage misses fires once.

    The same command again changes nothing; the name with other terms is refused.
    """
    payload = value_or_exit(_payload(compute_spec(runtime, arg, {}), {"model": model, "prompt": prompt}, file))
    payload |= {"labels": value_or_exit(parse_labels(label))} if label else {}
    payload |= {"ttl_ms": parse_duration_ms("--ttl", ttl)} if ttl is not None else {}
    with report_errors(), blocking_client(address) as client:
        schedule = client.schedules.create(
            name,
            payload,
            max_fee,
            cron=cron,
            interval_ms=0 if every is None else parse_duration_ms("--every", every),
            offset_min=value_or_exit(_offset_min(offset)),
            runs=runs,
            until_ms=None if until is None else parse_time_ms("--until", until),
            caller=caller,
            input=input_,
            media_type=media_type,
        )
    answer = msgspec.to_builtins(schedule)
    print_json(answer) if as_json else _print(answer)


@app.command("list", example="holdfast job schedule list --state active")
@on_node
def list_(
    address: NodeAddress,
    caller: Annotated[str | None, typer.Option(help="Only this account's.")] = None,
    state: Annotated[ScheduleState | None, typer.Option(help="Only those in this state.")] = None,
    after: AfterEvent = 0,
    limit: Limit = 100,
    oldest_first: OldestFirst = False,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """List schedules, newest first, with their next firing and the outcome of the last one."""
    params = {"caller": caller, "state": state, "limit": limit, "cursor": after, "newest_first": not oldest_first}
    page = call_node(address, "cap.listSchedules", **params)
    if as_json:
        print_json(page)
        return
    heads = ("NAME", "CALLER", "STATE", "WHEN", "NEXT", "JOBS", "REFUSED", "LAST", "ID")
    print_table(heads, [_row(schedule) for schedule in page["schedules"]], wide=wide)
    print_more(page["next_cursor"])


@app.command(example="holdfast job schedule show nightly --caller alice")
@on_node
def show(
    address: NodeAddress,
    schedule: ScheduleArgument,
    caller: CallerOption = None,
    as_json: Json = False,
) -> None:
    """Show a schedule: its terms, when it fires next, and what came of its last firings."""
    answer = call_node(address, "cap.getSchedule", schedule=schedule, caller=caller)
    print_json(answer) if as_json else _print(answer)


@app.command(example="holdfast job schedule pause nightly --caller alice")
@on_node
def pause(
    address: NodeAddress,
    schedule: ScheduleArgument,
    reason: Annotated[str, typer.Option(help="Why; shown with it.")] = "",
    caller: CallerOption = None,
    as_json: Json = False,
) -> None:
    """Pause a schedule. What is due meanwhile is not made up for."""
    params = {"schedule": schedule, "caller": caller, "reason": reason}
    _change(address, "cap.pauseSchedule", params, "paused", as_json=as_json)


@app.command(example="holdfast job schedule resume nightly --caller alice")
@on_node
def resume(
    address: NodeAddress,
    schedule: ScheduleArgument,
    caller: CallerOption = None,
    as_json: Json = False,
) -> None:
    """Resume a paused schedule, from its next time on."""
    params = {"schedule": schedule, "caller": caller}
    _change(address, "cap.resumeSchedule", params, "resumed", as_json=as_json)


@app.command(example="holdfast job schedule remove nightly --caller alice")
@on_node
def remove(
    address: NodeAddress,
    schedule: ScheduleArgument,
    caller: CallerOption = None,
    as_json: Json = False,
) -> None:
    """Remove a schedule. Jobs that it has enqueued go on."""
    params = {"schedule": schedule, "caller": caller}
    _change(address, "cap.deleteSchedule", params, "removed", as_json=as_json)


# ------------------------------------------------------------------------------------------------ parts


def _change(address: NodeAddress, method: str, params: dict[str, Any], what: str, *, as_json: bool) -> None:
    answer = call_node(address, method, **params)
    print_json(answer) if as_json else print(f"{params['schedule']} {what}: {repeat_note(answer)}")


def _payload(compute: dict[str, Any], ai: dict[str, str | None], file: Path | None) -> dict[str, Any] | Refused:
    given = {name: text for name, text in ai.items() if text is not None}
    if sum((bool(compute), bool(given), file is not None)) != 1:
        hint = "holdfast job schedule add nightly --cron '0 3 * * *' --runtime report"
        return invalid_option("--runtime, --model or --file: pass one of them", hint)
    return payload_from_file(file) if file is not None else payload_from_options(None, given, compute)


def _offset_min(text: str) -> int | Refused:
    parts = re.fullmatch(r"([+-])(\d{2}):(\d{2})", text.strip())
    if parts is None:
        hint = "write +02:00; a zone with summer time is two schedules"
        return Refused("JOB-014", f"--offset: {text!r:.40} is not ±HH:MM", hint, "InvalidParams")
    return int(f"{parts[1]}1") * (60 * int(parts[2]) + int(parts[3]))


def _when(schedule: dict[str, Any]) -> str:
    if not schedule["cron"]:
        return f"every {schedule['interval_ms'] / 1000:g}s"
    offset = schedule["offset_min"]
    sign = "-" if offset < 0 else "+"
    zone = f" {sign}{abs(offset) // 60:02}:{abs(offset) % 60:02}" if offset else ""
    return f"{schedule['cron']}{zone}"


def _outcome(firing: dict[str, Any]) -> str:
    return str(firing["task_id"] or f"{firing['refusal']}: {firing['message']} ({firing['rule']})")


def _row(schedule: dict[str, Any]) -> tuple[Any, ...]:
    last = schedule["firings"][-1] if schedule["firings"] else None
    outcome = None if last is None else last["refusal"] or f"{last['task_id'][:12]}…"
    names = ("fired", "refused")
    return (
        *(schedule[name] for name in ("name", "caller", "state")),
        *(_when(schedule), format_time(schedule["next_ms"])),
        *(schedule[name] for name in names),
        *(outcome, schedule["id"]),
    )


def _print(schedule: dict[str, Any]) -> None:
    plain = ("id", "name", "caller", "state", "reason", "max_fee", "runs_left", "fired", "refused")
    print_record(
        {name: schedule[name] for name in plain}
        | {
            "when": _when(schedule),
            "next": format_time(schedule["next_ms"]),
            "until": format_time(schedule["until_ms"]),
            "payload": msgspec.json.encode(schedule["payload"]).decode(),
        }
    )
    if schedule["firings"]:
        rows = [
            (format_time(each["due_ms"]), format_time(each["at_ms"]), each["missed"], _outcome(each))
            for each in reversed(schedule["firings"])
        ]
        print_table(("DUE", "FIRED", "MISSED", "JOB, OR WHY NOT"), rows)
