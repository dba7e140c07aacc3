"""`holdfast chain verify`: check headers and proofs on any machine, without a node and without trust in one."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.adapters.files import AtomicFolder
from holdfast.adapters.keys.signing import verify as check_signature
from holdfast.cli.chain.reader import ChainReader
from holdfast.cli.exit_codes import BAD_INPUT, REFUSED
from holdfast.cli.terminal.input_files import UnreadableInput, read_json
from holdfast.cli.terminal.node_client import NodeSession, run_on_node
from holdfast.cli.terminal.options import Json, NodeAddress, on_node
from holdfast.cli.terminal.progress import ProgressLine
from holdfast.cli.terminal.tables import format_time, pluralize, print_outcome
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.lightclient import header_export, log_proof
from holdfast.lightclient.headers import HeaderChain, VerificationFailed
from holdfast.lightclient.tx_proof import ProvedTransaction, check_tx_proof, parse_tx_proof

EXIT_FALSE, EXIT_UNREADABLE = REFUSED, BAD_INPUT


@on_node
def verify(
    address: NodeAddress,
    what: Annotated[
        Path | None,
        typer.Argument(metavar="DIR|FILE", help="A folder of headers or a proof. [default: the running node's chain]"),
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(help="Trust only this proposer's signature, in hex; may be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check headers link by link, or a proof from `holdfast chain prove`. A folder or a file needs no node.

    Each header must name its parent and have the hash of its own fields, the beacon of its parent's signature and a
    valid signature. --key says which proposers you trust; without it, the proposers are printed.

    Exit code 0: valid. 1: false, with the first block that failed and why. 2: cannot be read.
    """
    try:
        _verify(what, header_export.parse_keys(key or []), address, as_json=as_json)
    except VerificationFailed as fault:
        _exit(f"false: {fault}", EXIT_FALSE)
    except (Corrupt, Unavailable) as fault:
        _exit(f"holdfast: {fault}", EXIT_UNREADABLE)


def _verify(what: Path | None, keys: frozenset[bytes], address: NodeAddress, *, as_json: bool) -> None:
    if what is not None and what.is_file():
        _check_file(what, keys, as_json=as_json)
        return
    progress = ProgressLine("verifying")
    try:
        if what is None:
            chain = run_on_node(address, lambda node: _verify_live(node, keys, progress))
        else:
            folder = AtomicFolder(what)
            chain = asyncio.run(header_export.verify(folder, check_signature, keys, progress.show_height))
    finally:
        progress.end()
    _print_chain(chain, keys, as_json=as_json)


async def _verify_live(node: NodeSession, keys: frozenset[bytes], progress: ProgressLine) -> HeaderChain:
    reader = await ChainReader.open(node)
    progress.total = reader.head.header.height
    chain = HeaderChain(reader.genesis, check_signature, keys)
    async for signed in reader.blocks_after(chain.head.header.height):
        chain.append(signed)
        progress.show_height(signed.header.height)
    return chain


def _check_file(file: Path, keys: frozenset[bytes], *, as_json: bool) -> None:
    """A proof of an admission, or a consistency proof of the log of results."""
    values = _read_json(file)
    if isinstance(values, dict) and "second" in values:
        first, second, path = log_proof.parse(values, str(file))
        log_proof.check(first, second, path, check_signature, keys)
        old, new = first.header, second.header
        print_outcome(
            {"is_valid": True, "first": old.height, "second": new.height, "proposer": new.proposer.hex()},
            f"true: {old.log_size} results by block {old.height} begin the {new.log_size} by block {new.height}",
            f"signed  {new.proposer.hex()}{_trust_hint(keys)}",
            as_json=as_json,
        )
        return
    _print_proved(check_tx_proof(*parse_tx_proof(values, str(file)), check_signature, keys), keys, as_json=as_json)


def _read_json(file: Path) -> object:
    try:
        return read_json(file)
    except UnreadableInput as fault:
        raise Corrupt(
            "CHN-001", f"{file} cannot be read: {fault}", "a proof is the output of `holdfast chain prove`"
        ) from fault


def _print_chain(chain: HeaderChain, keys: frozenset[bytes], *, as_json: bool) -> None:
    header, head = chain.head.header, chain.head.hash.hex()
    blocks, transactions = pluralize(header.height, "block"), pluralize(chain.transactions, "transaction")
    signers = {key.hex(): first for key, first in chain.proposers.items()}
    answer = {"is_valid": True, "chain_id": header.chain_id, "height": header.height, "head": head}
    print_outcome(
        answer | {"transactions": chain.transactions, "proposers": signers},
        f"valid: {blocks} of chain {header.chain_id}, {transactions}, every link and signature is valid",
        *([f"head    {head}, {format_time(header.time_ms)}"] if header.height else []),
        *(f"signed  {key} from block {first} on{_trust_hint(keys)}" for key, first in signers.items()),
        as_json=as_json,
    )


def _print_proved(proved: ProvedTransaction, keys: frozenset[bytes], *, as_json: bool) -> None:
    header, hash_, subject = proved.signed.header, proved.signed.hash.hex(), proved.subject.hex()
    answer = {"is_valid": True, "type": proved.kind, "id": subject, "event": proved.event, "height": header.height}
    print_outcome(
        answer | {"hash": hash_, "chain_id": header.chain_id, "proposer": header.proposer.hex()},
        f"true: {proved.kind} of {subject} is event {proved.event} of chain {header.chain_id}",
        f"block   {header.height}, {hash_}, {format_time(header.time_ms)}",
        f"signed  {header.proposer.hex()}{_trust_hint(keys)}",
        as_json=as_json,
    )


def _trust_hint(keys: frozenset[bytes]) -> str:
    return ", which you trust" if keys else "; is that the proposer you trust? pass it with --key"


def _exit(message: str, code: int) -> None:
    print(message, file=sys.stderr)
    raise typer.Exit(code)
