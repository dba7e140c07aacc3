"""`holdfast verify`: a result's proof checked on any machine, without a node and without trust in one (RES-008)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.adapters.keys.signing import verify as check_signature
from holdfast.cli import Command, verb
from holdfast.cli.columns import print_record
from holdfast.cli.papers import Unreadable, bytes_of, json_of
from holdfast.core.chain.header import Signed
from holdfast.core.refusal import Corrupt, Unavailable
from holdfast.core.result import result_digest
from holdfast.engine import consistency, resultproof, shareproof
from holdfast.engine.headerfiles import keys_of
from holdfast.engine.headers import Untrue

FALSE, UNREADABLE = 1, 2
app = verb()


@app.command(cls=Command)
def verify(
    proof: Annotated[
        Path, typer.Argument(metavar="FILE", help="What `holdfast result prove` printed; - is standard input.")
    ],
    key: Annotated[
        list[str] | None, typer.Option(help="Only this proposer may have signed, in hex; several are allowed.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Bytes that are said to be the result: checked against the digest.")
    ] = None,
    growth: Annotated[
        Path | None,
        typer.Option(help="What `holdfast chain prove-growth` printed, from the result's block to a newer one."),
    ] = None,
) -> None:
    """Check that a result is in a block that its proposer has signed; it needs no node.

    With --growth also that a newer head, which you may know better, still has it in its log.

    Shares that `holdfast result da-proof` added are checked against the commitment in that block.

    Exit code 0: true. 1: false, with the first thing that is not so. 2: cannot be read.
    """
    try:
        _verify(proof, frozenset(keys_of(key or [])), output, growth)
    except Untrue as fault:
        _end(f"false: {fault}", FALSE)
    except (Corrupt, Unavailable) as fault:
        _end(f"holdfast: {fault}", UNREADABLE)


def _verify(proof: Path, keys: frozenset[bytes], output: Path | None, growth: Path | None) -> None:
    values = _json(proof)
    shown, sample = resultproof.read(values, str(proof)), shareproof.read(values, str(proof))
    leaf = resultproof.check(shown, check_signature, keys)
    if sample is not None:
        shareproof.check(leaf, sample)
    if output is not None and (made := result_digest(_bytes(output))) != leaf.result_digest:
        raise Untrue(f"{output} has the digest {made.hex()}, the chain holds {leaf.result_digest.hex()}")
    header = shown.signed.header
    head = _grown(growth, shown.signed, keys) if growth is not None else None
    print(f"true: task {leaf.task_id.hex()} was resolved in block {header.height} of chain {header.chain_id}")
    signer = header.proposer.hex()
    record = {"digest": leaf.result_digest.hex(), "size": leaf.size, "nullifier": leaf.nullifier.hex()}
    record |= {"signed": signer if keys else f"{signer}; is that the proposer you know? name it with --key"}
    record |= {"commitment": leaf.da_commitment.hex()} if leaf.da_commitment is not None else {}
    if sample is not None:
        last = sample.start + len(sample.shares) - 1
        record |= {"shares": f"{sample.start} to {last} of {sample.pinned.total} are part of it"}
    record |= {"output": "has this digest"} if output is not None else {}
    print_record(record | ({"log": f"still in that of block {head}"} if head is not None else {}))


def _grown(growth: Path, block: Signed, keys: frozenset[bytes]) -> int:
    """RES-008: the log only grew from the result's block to a newer head; returns that one's height."""
    first, second, path = consistency.read_shown(_json(growth), str(growth))
    if first.hash != block.hash:
        raise Untrue(f"{growth} begins at block {first.header.height}, {first.hash.hex()}, not at the result's")
    consistency.check(first, second, path, check_signature, keys)
    return second.header.height


def _json(path: Path) -> object:
    try:
        return json_of(path)
    except Unreadable as fault:
        raise Corrupt("RES-008", f"{path} cannot be read: {fault}", "a proof is what `result prove` prints") from fault


def _bytes(path: Path) -> bytes:
    try:
        return bytes_of(path)
    except Unreadable as fault:
        raise Unavailable("RES-008", f"{path}: {fault}") from fault


def _end(says: str, code: int) -> None:
    print(says, file=sys.stderr)
    raise typer.Exit(code)
