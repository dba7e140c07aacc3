"""`holdfast job`: hand work to the queue, look after it, take it back."""

from __future__ import annotations

import re
import secrets
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from holdfast.cli import deadletter, quoting, verb
from holdfast.cli.asking import Asked, Ca, Data, Json, Place, TokenFile, Url, ask, run
from holdfast.cli.columns import print_json, print_record, print_table, when
from holdfast.cli.custody import custody
from holdfast.cli.durations import milliseconds
from holdfast.cli.holding import list_held
from holdfast.cli.papers import Unreadable, json_of
from holdfast.cli.speak import given, refuse
from holdfast.client import NodeUnreachable
from holdfast.core.job.record import JobState
from holdfast.core.refusal import Refused
from holdfast.core.values import Kind

app = verb(no_args_is_help=True, help="Hand work to the queue, look after it, take it back.")
app.add_typer(deadletter.app, name="dead-letter")
app.command("quote")(quoting.quote)
MAX_FEE: Final = 1_000
Id = Annotated[str, typer.Argument(metavar="TASK_ID", help="The job's id, as its receipt says.")]


@app.command()
def enqueue(
    max_fee: Annotated[int, typer.Option(min=1, help="What it may cost at most; reserved at once.")] = MAX_FEE,
    caller: Annotated[str | None, typer.Option(help="Whose job it is. [default: the key's account]")] = None,
    kind: Annotated[Kind, typer.Option(help="What kind of work.")] = Kind.AI,
    model: Annotated[str | None, typer.Option(help="AI: which model.")] = None,
    prompt: Annotated[str | None, typer.Option(help="AI: what it is asked.")] = None,
    file: Annotated[
        Path | None, typer.Option(help="The whole payload as JSON instead of the flags; - is standard input.")
    ] = None,
    units: Annotated[int | None, typer.Option(min=1, help="Units of work. [default: 1]")] = None,
    ttl: Annotated[str | None, typer.Option(help="How long it may take: 90m, 12h. [default: its kind's]")] = None,
    quorum: Annotated[
        str | None, typer.Option(metavar="N/M", help="So many of so many providers must come to the same: 2/3.")
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Your name for this request: asked again, it gives the first receipt.")
    ] = None,
    nonce: Annotated[int | None, typer.Option(min=0, help="Tells equal jobs apart. [default: drawn]")] = None,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Hand a job over. The receipt says that the queue holds it, durably, and that its fee is reserved.

    A job on the node of this folder needs --caller; over HTTP it is the account of the key.
    """
    payload = given(_payload(kind, model, prompt, file))
    more = {
        "units": units,
        "ttl_ms": None if ttl is None else milliseconds("--ttl", ttl),
        "quorum": given(_quorum(quorum)),
    }
    payload |= {name: value for name, value in more.items() if value is not None}
    drawn = secrets.randbits(63) if nonce is None else nonce  # said by us, so that asking again is the same request
    asked = {"payload": payload, "max_fee": max_fee, "nonce": drawn, "idempotency_key": idempotency_key}

    async def hand_over(node: Asked) -> Any:
        try:
            return await node.call("cap.enqueue", **asked, caller=caller)
        except NodeUnreachable:
            print(f"not known whether it was taken: ask again with --nonce {drawn}", file=sys.stderr)
            raise

    receipt = run(Place(data, url, token_file, ca), hand_over)
    print_json(receipt) if as_json else _print_receipt(receipt)


@app.command()
def show(
    task_id: Id,
    events: Annotated[bool, typer.Option("--events", help="Also every event that names it, from the journal.")] = False,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """A job as it is now: its receipt, what was asked, and what happened to it so far."""
    if events and url is not None:
        refuse(
            Refused("RPC-001", "--events reads the socket of the node's folder", "leave --url away", "InvalidParams")
        )

    async def look(node: Asked) -> tuple[Any, list[Any]]:
        found = await node.call("cap.getJob", task_id=task_id)
        return found, await _events_of(node, found["job"]) if events else []

    found, told = run(Place(data, url, token_file, ca), look)
    if as_json:
        print_json({**found, "events": told} if events else found)
        return
    _print_job(found)
    for event in told:
        print(f"  event {event['number']:<8} {when(event['time_ms'])}  {event['type']}")


@app.command("list")
def list_(
    caller: Annotated[str | None, typer.Option(help="Only this account's.")] = None,
    status: Annotated[JobState | None, typer.Option(help="Only those that are there.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only of this kind.")] = None,
    from_height: Annotated[int | None, typer.Option(min=0, help="Admitted in this block or later.")] = None,
    replicas: Annotated[bool, typer.Option("--replicas", help="Also the replicas of jobs that have some.")] = False,
    provider: Annotated[str | None, typer.Option(metavar="ID", help="Only those that this provider holds now.")] = None,
    limit: Annotated[int, typer.Option(help="How many.")] = 100,
    cursor: Annotated[int, typer.Option(min=0, help="Go on after this one.")] = 0,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Jobs in the order of their admission; with --provider what it has in hand, and until when."""
    place = Place(data, url, token_file, ca)
    if provider is not None:
        if from_height is not None:
            refuse(Refused("RPC-001", "--from-height: not with --provider", "leave one away", "InvalidParams"))
        held = {"state": status, "kind": kind, "caller": caller, "limit": limit, "cursor": cursor}
        list_held(place, provider, held, as_json=as_json)
        return
    asked = {"caller": caller, "status": status, "kind": kind, "from_height": from_height, "include_replicas": replicas}
    found = ask(place, "cap.listJobs", **asked, limit=limit, cursor=cursor)
    if as_json:
        print_json(found)
        return
    heads = ("TASK ID", "KIND", "STATE", "CALLER", "MAX FEE", "HEIGHT", "ENQUEUED")
    columns = ("id", "kind", "state", "caller", "max_fee", "height")
    print_table(heads, [(*(row[name] for name in columns), when(row["enqueue_ms"])) for row in found["rows"]])
    if found["next_after"] is not None:
        print(f"more: --cursor {found['next_after']}")


@app.command()
def cancel(task_id: Id, data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None) -> None:
    """End a job; its money goes back in the open block."""
    done = ask(Place(data, url, token_file, ca), "cap.cancel", task_id=task_id)
    print(f"cancelled (event {done['event']}); the money is available again when the block is final")


@app.command("raise-fee")
def raise_fee(
    task_id: Id,
    max_fee: Annotated[int, typer.Argument(metavar="MAX_FEE", min=1, help="What it may cost now.")],
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Offer more for a job, which moves it forward in the queue."""
    done = ask(Place(data, url, token_file, ca), "cap.raiseFee", task_id=task_id, max_fee=max_fee)
    print(f"it is worth {max_fee} now (event {done['event']}{', as before' if done['is_repeat'] else ''})")


# ------------------------------------------------------------------------------------------------ in and out


def _payload(kind: Kind, model: str | None, prompt: str | None, file: Path | None) -> dict[str, Any] | Refused:
    if file is not None:
        if model is not None or prompt is not None:
            return _bad("--file: the payload is in the file", "leave --model and --prompt away")
        return _from_file(file)
    if kind is not Kind.AI:
        hint = '{"kind": "QUANTUM", "spec": {"circuit": …, "shots": 1000, "width": 2, "depth": 3}}'
        return _bad(f"--file: a {kind} job is described in a file", hint)
    if model is None or prompt is None:
        return _bad("--model and --prompt: both are needed", "or --file with the whole payload")
    return {"kind": kind.value, "spec": {"model": model, "prompt": prompt}}


def _quorum(told: str | None) -> dict[str, int] | Refused | None:
    """LEA-009: two numbers; what they may be, the node says."""
    if told is None:
        return None
    found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", told)
    if found is None:
        return _bad(f"--quorum: {told!r:.40} is not N/M", "2/3: two of three providers must come to the same")
    return {"n": int(found[1]), "m": int(found[2])}


def _from_file(file: Path) -> dict[str, Any] | Refused:
    try:
        return json_of(file, dict[str, Any])
    except Unreadable as fault:
        return _bad(f"--file: {file}: {fault}", 'expected {"kind": "AI", "spec": {"model": …, "prompt": …}}')


def _bad(says: str, hint: str) -> Refused:
    return Refused("JOB-003", says, hint, "InvalidParams")


def _print_receipt(receipt: dict[str, Any]) -> None:
    record = dict(receipt) | {"enqueued": when(receipt["enqueue_ms"]), "expires": when(receipt["expires_ms"])}
    for name in ("enqueue_ms", "expires_ms", "is_repeat"):
        record.pop(name)
    print_record(record)
    if receipt["is_repeat"]:
        print("the queue had it already: this is the first receipt again", file=sys.stderr)


def _print_job(found: dict[str, Any]) -> None:
    job = found["job"]
    receipt = ("kind", "caller", "tier", "height", "tx_hash", "nonce", "request_hash")
    print_record(
        {"task_id": job["id"], "state": job["state"]}
        | {name: job[name] for name in receipt}
        | {
            "earliest_read_height": found["earliest_read_height"],
            "reserved": job["max_fee"],
            "expires": f"{when(job['expires_ms'])}, or at height {found['expires_height']}",
            "payload": msgspec.json.encode(found["payload"]).decode(),
        }
    )
    if job["parent"]:
        print_record({"replica_of": job["parent"]})
    if found["replicas"]:
        _print_replicas(job, found["replicas"])
    print("chain of custody:")
    for each in custody(found):
        print(f"  {when(each.at_ms):<21} {each.what:<46} {each.proof:<52} {each.rule}")


def _print_replicas(job: dict[str, Any], replicas: list[dict[str, Any]]) -> None:
    print(f"replicas, of which {job['quorum_n']} of {job['quorum_m']} must agree:")
    heads = ("INDEX", "STATE", "PROVIDER", "DIGEST", "PAID", "TASK ID")
    names = ("index", "state", "provider_id", "digest", "charged", "task_id")
    print_table(heads, [tuple(each[name] for name in names) for each in replicas])


async def _events_of(node: Asked, job: dict[str, Any]) -> list[Any]:
    """Everything in the journal that names the job, from its admission to now."""
    assert node.local is not None
    last, told = (await node.call("node.status"))["event"], []
    async for event in node.local.follow(job["event"] - 1):
        if job["id"] in (event["event"].get(name) for name in ("id", "task_id", "job_id")):
            told.append(event)
        if event["number"] >= last:
            break
    return told
