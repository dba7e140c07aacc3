"""`holdfast verify`: check a result's proof on any machine, without a node and without trust in one (RES-008)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.adapters.keys.signing import verify as check_signature
from holdfast.cli import make_app
from holdfast.cli.exit_codes import BAD_INPUT, REFUSED
from holdfast.cli.terminal.input_files import UnreadableInput, read_bytes, read_json
from holdfast.cli.terminal.options import Json
from holdfast.cli.terminal.tables import print_json, print_record
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.chain.header import Header, SignedHeader
from holdfast.core.result import result_digest
from holdfast.lightclient import log_proof, result_proof, share_proof
from holdfast.lightclient.header_export import parse_keys
from holdfast.lightclient.headers import VerificationFailed
from holdfast.lightclient.result_proof import ResultLeaf

EXIT_FALSE, EXIT_UNREADABLE = REFUSED, BAD_INPUT
app = make_app()


@app.command(example="holdfast result prove 3f9c0a1b > proof.json\nholdfast verify proof.json --output result.bin")
def verify(
    proof: Annotated[
        Path, typer.Argument(metavar="FILE", help="The output of `holdfast result prove`; - is standard input.")
    ],
    key: Annotated[
        list[str] | None, typer.Option(help="Trust only this proposer's signature, in hex; may be repeated.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="A file with the result's bytes: checked against the digest.")
    ] = None,
    consistency: Annotated[
        Path | None,
        typer.Option(help="The output of `holdfast chain prove-consistency`, from the result's block to a newer one."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that a result is in a block that its proposer has signed. No node is needed.

    With --consistency also that a newer head, which you may already trust, still has the result in its log.

    Shares from `holdfast result prove-shares` are checked against the commitment in that block.

    Exit code 0: true. 1: false, with the first check that failed. 2: cannot be read.
    """
    try:
        _verify(proof, frozenset(parse_keys(key or [])), output, consistency, as_json=as_json)
    except VerificationFailed as fault:
        _exit(f"false: {fault}", EXIT_FALSE)
    except (Corrupt, Unavailable) as fault:
        _exit(f"holdfast: {fault}", EXIT_UNREADABLE)


def _verify(
    file: Path, keys: frozenset[bytes], output: Path | None, consistency: Path | None, *, as_json: bool
) -> None:
    values = _read_json(file)
    proof, sample = result_proof.parse(values, str(file)), share_proof.parse(values, str(file))
    leaf = result_proof.check(proof, check_signature, keys)
    if sample is not None:
        share_proof.check(leaf, sample)
    if output is not None and (digest := result_digest(_read_bytes(output))) != leaf.result_digest:
        raise VerificationFailed(f"{output} has the digest {digest.hex()}, the chain has {leaf.result_digest.hex()}")
    header = proof.signed.header
    head = _check_consistency(consistency, proof.signed, keys) if consistency is not None else None
    if as_json:
        print_json(_as_values(leaf, header, head))
        return
    print(f"true: task {leaf.task_id.hex()} was resolved in block {header.height} of chain {header.chain_id}")
    signer = header.proposer.hex()
    record = {"digest": leaf.result_digest.hex(), "size": leaf.size, "nullifier": leaf.nullifier.hex()}
    record |= {"signed": signer if keys else f"{signer}; is that the proposer you trust? pass it with --key"}
    record |= {"commitment": leaf.da_commitment.hex()} if leaf.da_commitment is not None else {}
    if sample is not None:
        last = sample.start + len(sample.shares) - 1
        record |= {"shares": f"{sample.start} to {last} of {sample.commitment.total} are part of it"}
    record |= {"output": "has this digest"} if output is not None else {}
    print_record(record | ({"log": f"still in the log of block {head}"} if head is not None else {}))


def _as_values(leaf: ResultLeaf, header: Header, head: int | None) -> dict[str, object]:
    return {
        "is_valid": True,
        "task_id": leaf.task_id.hex(),
        "result_digest": leaf.result_digest.hex(),
        "result_size": leaf.size,
        "nullifier": leaf.nullifier.hex(),
        "height": header.height,
        "chain_id": header.chain_id,
        "proposer": header.proposer.hex(),
        "in_log_of": head,
    }


def _check_consistency(file: Path, block: SignedHeader, keys: frozenset[bytes]) -> int:
    """RES-008: the log was only appended to between the result's block and a newer head; returns the head's height."""
    first, second, path = log_proof.parse(_read_json(file), str(file))
    if first.hash != block.hash:
        raise VerificationFailed(
            f"{file} begins at block {first.header.height}, {first.hash.hex()}, not at the result's"
        )
    log_proof.check(first, second, path, check_signature, keys)
    return second.header.height


def _read_json(path: Path) -> object:
    try:
        return read_json(path)
    except UnreadableInput as fault:
        raise Corrupt(
            "RES-008", f"{path} cannot be read: {fault}", "a proof is the output of `holdfast result prove`"
        ) from fault


def _read_bytes(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except UnreadableInput as fault:
        raise Unavailable("RES-008", f"{path}: {fault}", "pass a file that can be read") from fault


def _exit(message: str, code: int) -> None:
    print(message, file=sys.stderr)
    raise typer.Exit(code)
