"""`holdfast result`: a job's result, its bytes, and proofs of it that anybody can check offline."""

from __future__ import annotations

import secrets
import sys
from typing import Annotated, Any, Final

import typer

from holdfast.adapters.keys.signing import verify as check_signature
from holdfast.cli import make_app
from holdfast.cli.job.output import write_output
from holdfast.cli.terminal.node_client import NodeSession, call_node, find_job, run_on_node
from holdfast.cli.terminal.options import Json, JsonAlways, Limit, NodeAddress, OldestFirst, Wide, on_node
from holdfast.cli.terminal.reporting import report_errors
from holdfast.cli.terminal.tables import format_time, print_json, print_more, print_record, print_table
from holdfast.client import NodeRefused, NodeUnreachable
from holdfast.client.job_lines import NONCE_MAX
from holdfast.lightclient import result_proof, share_proof
from holdfast.lightclient.da.commitment import Sample
from holdfast.lightclient.da.shares import share_count
from holdfast.lightclient.header_export import parse_keys
from holdfast.lightclient.headers import VerificationFailed, parse_hex
from holdfast.lightclient.sampling import Availability, assess_availability, sample_indexes

app = make_app(no_args_is_help=True, help="Read a job's result and get a proof of it.")
SEED_BYTES: Final = 16
Id = Annotated[str, typer.Argument(metavar="TASK_ID", help="The job's id, or the beginning of it.")]
ChainIdOption = Annotated[
    int | None, typer.Option("--chain-id", min=0, help="Refuse if the node has another chain id.")
]


# ------------------------------------------------------------------------------------------------ reading


@app.command(example="holdfast result show 3f9c0a1b")
@on_node
def show(
    address: NodeAddress,
    task_id: Id,
    chain_id: ChainIdOption = None,
    pending: Annotated[bool, typer.Option("--pending", help="Also show a result that is PENDING or EXPIRED.")] = False,
    as_json: Json = False,
) -> None:
    """Show the record of a result. It can be read from the block after its own on."""
    params = {"task_id": task_id, "chain_id": chain_id, "even_pending": pending}
    record = call_node(address, "cap.getResult", **params)
    print_json(record) if as_json else print_record(record)


@app.command("list", example="holdfast result list --caller alice --from-height 100")
@on_node
def list_(
    address: NodeAddress,
    caller: Annotated[str | None, typer.Option(help="Only this account's, with what they cost.")] = None,
    from_height: Annotated[int, typer.Option(min=1, help="Resolved in this block or later.")] = 1,
    until_height: Annotated[int | None, typer.Option(min=1, help="Resolved in this block or earlier.")] = None,
    after: Annotated[int, typer.Option(metavar="N", min=0, help="Continue after this one, as the last page says.")] = 0,
    limit: Limit = 100,
    oldest_first: OldestFirst = False,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """List results by the block that resolved them, newest first, of everybody or of one caller."""
    heights = {"from_height": from_height, "until_height": until_height}
    params = {"caller": caller, **heights, "limit": limit, "cursor": after, "newest_first": not oldest_first}
    page = call_node(address, "cap.listResults", **params)
    if as_json:
        print_json(page)
        return
    rows = [
        (row["height_resolved"], row["task_id"], row["result_size"], row["result_digest"], row.get("charged", ""))
        for row in page["rows"]
    ]
    print_table(("HEIGHT", "TASK ID", "BYTES", "DIGEST", "CHARGED"), rows, wide=wide)
    print_more(page["next_after"])


@app.command(example="holdfast result read 3f9c0a1b > output.bin")
@on_node
def read(address: NodeAddress, task_id: Id) -> None:
    """Write what the program wrote to standard output, checked against the digest in the chain.

    The same as `holdfast job output`, which also writes to a file.
    """
    write_output(address, task_id)


@app.command(example="holdfast result consume 3f9c0a1b --caller alice")
@on_node
def consume(
    address: NodeAddress,
    task_id: Id,
    caller: Annotated[str | None, typer.Option(help="The account that uses it, if an operator acts for it.")] = None,
    chain_id: ChainIdOption = None,
    nonce: Annotated[int | None, typer.Option(min=0, help="Repeat it to retry safely. [default: random]")] = None,
    as_json: Json = False,
) -> None:
    """Mark a result as used: once, by its job's caller, from the block after its own on.

    A reorg that rolls back its block also undoes this use. It counts again if the result is readable by then.
    """
    request_nonce = nonce if nonce is not None else secrets.randbelow(NONCE_MAX)
    params = {"task_id": task_id, "caller": caller, "chain_id": chain_id, "nonce": request_nonce}

    async def consume_result(node: NodeSession) -> Any:
        try:
            return await node.call("cap.consumeResult", **params)
        except NodeUnreachable:
            print(f"outcome unknown: retry with --nonce {request_nonce}", file=sys.stderr)
            raise

    used = run_on_node(address, consume_result)
    if as_json:
        print_json(used)
    else:
        print(f"used by {used['caller']}, event {used['event']}" + (", as before" if used["is_repeat"] else ""))


@app.command(example="holdfast result verdicts 3f9c0a1b")
@on_node
def verdicts(address: NodeAddress, task_id: Id, wide: Wide = False, as_json: Json = False) -> None:
    """Show why proofs of a job were refused, and by which method. The accepted proof is in the result's record."""
    page = call_node(address, "cap.listVerdicts", task_id=task_id)
    if as_json:
        print_json(page)
        return
    heads = ("WHEN", "VERDICT", "METHOD", "PROVIDER", "REASONS")
    rows = [
        (format_time(row["at_ms"]), row["verdict"], row["method"], row["provider_id"], row["reasons"])
        for row in page["rows"]
    ]
    print_table(heads, rows, wide=wide) if rows else print("no proof of this job was refused")


# ------------------------------------------------------------------------------------------------ proofs


@app.command(example="holdfast result prove 3f9c0a1b > proof.json")
@on_node
def prove(
    address: NodeAddress,
    task_id: Id,
    as_json: JsonAlways = True,
) -> None:
    """Print a proof of a result as JSON. `holdfast verify` checks it on any machine, without a node."""
    print_json(call_node(address, "cap.proveResult", task_id=task_id))


@app.command("prove-shares", example="holdfast result prove-shares 3f9c0a1b --share 0 --count 4 > shares.json")
@on_node
def prove_shares(
    address: NodeAddress,
    task_id: Id,
    share: Annotated[int, typer.Option(min=0, help="The first share, counted from 0; a share has 512 bytes.")],
    count: Annotated[int, typer.Option(min=1, help="How many shares.")] = 1,
    as_json: JsonAlways = True,
) -> None:
    """Print shares of a large result as JSON, with a proof that they are part of it and the result's own proof.

    `holdfast verify` checks both on any machine, without the other bytes.
    """
    print_json(call_node(address, "da.proveShares", task_id=task_id, start=share, count=count))


# ------------------------------------------------------------------------------------------------ availability


@app.command(example="holdfast result sample 3f9c0a1b --samples 50")
@on_node
def sample(
    address: NodeAddress,
    task_id: Id,
    samples: Annotated[int, typer.Option(min=1, max=1_000, help="How many shares to request.")] = 20,
    seed: Annotated[str | None, typer.Option(help="Determines which shares. [default: random]")] = None,
    key: Annotated[list[str] | None, typer.Option(help="Trust only this proposer's signature, in hex.")] = None,
    as_json: Json = False,
) -> None:
    """Check that a large result is available: request random shares and verify each against the result's block.

    Exit code 0: all shares came and are valid. 1: some did not or are not; they are listed.
    """
    with report_errors():
        keys, seed_bytes = parse_keys(key or []), parse_hex(seed, "--seed") if seed is not None else None
    whole_id = find_job(address, task_id)
    try:
        availability = run_on_node(address, lambda node: sample_shares(node, whole_id, samples, seed_bytes, keys))
    except VerificationFailed as fault:
        print(f"false: {fault}", file=sys.stderr)
        raise typer.Exit(1) from None
    print_json(availability) if as_json else print_record(_availability_record(availability))
    if not availability.is_good:
        raise typer.Exit(1)


async def sample_shares(
    node: NodeSession, task_id: str, samples: int, seed: bytes | None, keys: frozenset[bytes]
) -> Availability:
    """DA-001: request the shares that the seed selects, and check each against the commitment in the signed block."""
    proof = await node.call("cap.proveResult", task_id=task_id)
    leaf = result_proof.check(result_proof.parse(proof, "the node's proof"), check_signature, keys)
    if leaf.task_id.hex() != task_id:
        raise VerificationFailed(f"the node's proof is of another task, {leaf.task_id.hex()}")
    if leaf.da_commitment is None:
        raise VerificationFailed("this result has no data availability commitment: its bytes are inline")
    total = share_count(leaf.size)
    seed = seed if seed is not None else secrets.token_bytes(SEED_BYTES)
    indexes = sample_indexes(leaf.da_commitment, seed, total, samples)
    shares = {index: await _fetch_share(node, task_id, index) for index in indexes}
    return assess_availability(leaf.da_commitment, total, indexes, shares)


async def _fetch_share(node: NodeSession, task_id: str, index: int) -> Sample | None:
    try:
        proof: Any = await node.call("da.proveShares", task_id=task_id, start=index)
    except NodeRefused as refusal:
        print(f"share {index}: {refusal}", file=sys.stderr)
        return None
    return share_proof.parse(proof, "the node's proof")


def _availability_record(availability: Availability) -> dict[str, object]:
    """The answer in words."""
    part = f"{availability.missing_ppm / 10_000:g} %"
    answer = f"{availability.confidence_ppm} ppm sure that less than {part} of it is missing"
    record: dict[str, object] = {
        "shares": availability.total,
        "sampled": availability.sampled,
        "answer": answer if availability.is_good else "not available",
    }
    return record | {f"share {index}": reason for index, reason in availability.refused.items()}
