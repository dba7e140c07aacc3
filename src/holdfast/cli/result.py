"""`holdfast result`: what came out of a job, and a proof of it that anybody checks offline."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from holdfast.cli import verb
from holdfast.cli.asking import Ca, Data, Json, Place, TokenFile, Url, ask
from holdfast.cli.columns import print_json, print_record
from holdfast.cli.speak import told
from holdfast.core.refusal import Corrupt
from holdfast.core.result import result_digest

app = verb(no_args_is_help=True, help="What came out of a job, and a proof of it.")
Id = Annotated[str, typer.Argument(metavar="TASK_ID", help="The job's id, as its receipt says.")]


@app.command()
def show(
    task_id: Id, data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None, as_json: Json = False
) -> None:
    """The record of a result, from the block after its own on."""
    found = ask(Place(data, url, token_file, ca), "cap.getResult", task_id=task_id)
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
def prove(task_id: Id, data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None) -> None:
    """A proof for light clients, as JSON on standard output: check it with `holdfast verify`, on any machine."""
    print_json(ask(Place(data, url, token_file, ca), "cap.proveResult", task_id=task_id))
