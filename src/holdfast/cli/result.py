"""`holdfast result`: what came out of a job, and a proof of it that anybody checks offline."""

from __future__ import annotations

import secrets
import sys
from typing import Annotated, Any

import typer

from holdfast.cli import verb
from holdfast.cli.asking import Asked, Ca, Data, Json, Place, TokenFile, Url, ask, run
from holdfast.cli.columns import print_json, print_record, print_table, when
from holdfast.cli.sampling import sampled
from holdfast.cli.sampling import told as told_of
from holdfast.cli.speak import told
from holdfast.client import NodeUnreachable
from holdfast.core.refusal import Corrupt
from holdfast.core.result import result_digest
from holdfast.engine.headerfiles import keys_of
from holdfast.engine.headers import Untrue, hex_bytes

app = verb(no_args_is_help=True, help="What came out of a job, and a proof of it.")
Id = Annotated[str, typer.Argument(metavar="TASK_ID", help="The job's id, as its receipt says.")]
Chain = Annotated[int | None, typer.Option("--chain-id", min=0, help="Refused where the node is of another chain.")]


@app.command()
def show(
    task_id: Id,
    chain_id: Chain = None,
    pending: Annotated[bool, typer.Option("--pending", help="Show PENDING and EXPIRED, too.")] = False,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """The record of a result, from the block after its own on."""
    asked = {"task_id": task_id, "chain_id": chain_id, "even_pending": pending}
    found = ask(Place(data, url, token_file, ca), "cap.getResult", **asked)
    print_json(found) if as_json else print_record(found)


@app.command()
def read(task_id: Id, data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None) -> None:
    """The bytes of a result on standard output, checked against the digest that the chain holds.

    A node hands bytes out only on a development network that was told to: policy.result.serve_bytes = true.
    """
    place = Place(data, url, token_file, ca)
    record = ask(place, "cap.getResult", task_id=task_id)
    raw = bytes.fromhex(ask(place, "cap.getResultBytes", task_id=task_id)["bytes"])
    with told():
        if result_digest(raw).hex() != record["result_digest"]:
            raise Corrupt("RES-004", "the bytes are not those of the digest", "ask another node")
    sys.stdout.buffer.write(raw)


@app.command()
def consume(
    task_id: Id,
    caller: Annotated[
        str | None, typer.Option(help="Who uses it, where an operator asks on somebody's behalf.")
    ] = None,
    chain_id: Chain = None,
    nonce: Annotated[int | None, typer.Option(min=0, help="A retry says the same one; drawn if not given.")] = None,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Mark a result as used: once, by its job's caller, from the block after its own on.

    A reorg that takes the block of this back takes the mark back; it counts again where the result can be read by then.
    """
    drawn = nonce if nonce is not None else secrets.randbits(63)
    asked = {"task_id": task_id, "caller": caller, "chain_id": chain_id, "nonce": drawn}

    async def use(node: Asked) -> Any:
        try:
            return await node.call("cap.consumeResult", **asked)
        except NodeUnreachable:
            print(f"not known whether it was used: ask again with --nonce {drawn}", file=sys.stderr)
            raise

    used = run(Place(data, url, token_file, ca), use)
    if as_json:
        print_json(used)
    else:
        print(f"used by {used['caller']}, event {used['event']}" + (", as before" if used["is_repeat"] else ""))


@app.command()
def verdicts(
    task_id: Id, data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None, as_json: Json = False
) -> None:
    """Why proofs of a job were refused, and by which method; the accepted one is in the result's record."""
    found = ask(Place(data, url, token_file, ca), "cap.listVerdicts", task_id=task_id)
    if as_json:
        print_json(found)
        return
    heads = ("when", "verdict", "method", "provider", "reasons")
    rows = [(when(r["at_ms"]), r["verdict"], r["method"], r["provider_id"][:16], r["reasons"]) for r in found["rows"]]
    print_table(heads, rows) if rows else print("no proof of this job was refused")


@app.command("da-proof")
def da_proof(
    task_id: Id,
    share: Annotated[int, typer.Option(min=0, help="The first share, from 0 on; a share has 512 bytes.")],
    count: Annotated[int, typer.Option(min=1, help="How many shares.")] = 1,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Some shares of a large result with the proof that they are part of it, and that of the result, as JSON.

    `holdfast verify` checks both on any machine, without the rest of the bytes.
    """
    place = Place(data, url, token_file, ca)
    print_json(ask(place, "da.proveShares", task_id=task_id, start=share, count=count))


@app.command()
def sample(
    task_id: Id,
    samples: Annotated[int, typer.Option(min=1, max=1_000, help="How many shares to ask for.")] = 20,
    seed: Annotated[str | None, typer.Option(help="Draws them, in hex; at random if not given.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="Only this proposer may have signed, in hex.")] = None,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Whether a large result is available: shares drawn at random, each checked against the block that resolved it.

    Exit code 0: all of them came and are right. 1: not so, with the shares that are not.
    """
    with told():
        keys, drawing = keys_of(key or []), hex_bytes(seed, "--seed") if seed is not None else None
    try:
        found = run(Place(data, url, token_file, ca), lambda node: sampled(node, task_id, samples, drawing, keys))
    except Untrue as fault:
        print(f"false: {fault}", file=sys.stderr)
        raise typer.Exit(1) from None
    print_json(found) if as_json else print_record(told_of(found))
    if not found.is_good:
        raise typer.Exit(1)


@app.command()
def prove(task_id: Id, data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None) -> None:
    """A proof for light clients, as JSON on standard output: check it with `holdfast verify`, on any machine."""
    print_json(ask(Place(data, url, token_file, ca), "cap.proveResult", task_id=task_id))
