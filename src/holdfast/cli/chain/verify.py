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
from holdfast.cli.terminal.input_files import UnreadableInput, read_json
from holdfast.cli.terminal.node_client import NodeAddress, NodeSession, run_on_node
from holdfast.cli.terminal.options import Ca, Data, TokenFile, Url
from holdfast.cli.terminal.progress import ProgressLine
from holdfast.cli.terminal.tables import format_time, pluralize
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.lightclient import header_export, log_proof
from holdfast.lightclient.headers import HeaderChain, VerificationFailed
from holdfast.lightclient.tx_proof import ProvedTransaction, check_tx_proof, parse_tx_proof

EXIT_FALSE, EXIT_UNREADABLE = 1, 2


def verify(
    what: Annotated[
        Path | None,
        typer.Argument(metavar="DIR|FILE", help="A folder of headers or a proof. [default: the running node's chain]"),
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(help="Trust only this proposer's signature, in hex; may be repeated.")
    ] = None,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Check headers link by link, or a proof from `holdfast chain prove`. A folder or a file needs no node.

    Each header must name its parent and have the hash of its own fields, the beacon of its parent's signature and a
    valid signature. --key says which proposers you trust; without it, the proposers are printed.

    Exit code 0: valid. 1: false, with the first block that failed and why. 2: cannot be read.
    """
    try:
        _verify(what, header_export.parse_keys(key or []), NodeAddress(data, url, token_file, ca))
    except VerificationFailed as fault:
        _exit(f"false: {fault}", EXIT_FALSE)
    except (Corrupt, Unavailable) as fault:
        _exit(f"holdfast: {fault}", EXIT_UNREADABLE)


def _verify(what: Path | None, keys: frozenset[bytes], address: NodeAddress) -> None:
    if what is not None and what.is_file():
        _check_file(what, keys)
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
    _print_chain(chain, keys)


async def _verify_live(node: NodeSession, keys: frozenset[bytes], progress: ProgressLine) -> HeaderChain:
    reader = await ChainReader.open(node)
    chain = HeaderChain(reader.genesis, check_signature, keys)
    async for signed in reader.blocks_after(chain.head.header.height):
        chain.append(signed)
        progress.show_height(signed.header.height)
    return chain


def _check_file(file: Path, keys: frozenset[bytes]) -> None:
    """A proof of an admission, or a consistency proof of the log of results."""
    values = _read_json(file)
    if isinstance(values, dict) and "second" in values:
        first, second, path = log_proof.parse(values, str(file))
        log_proof.check(first, second, path, check_signature, keys)
        old, new = first.header, second.header
        print(f"true: {old.log_size} results by block {old.height} begin the {new.log_size} by block {new.height}")
        print(f"signed  {new.proposer.hex()}{_trust_hint(keys)}")
        return
    _print_proved(check_tx_proof(*parse_tx_proof(values, str(file)), check_signature, keys), keys)


def _read_json(file: Path) -> object:
    try:
        return read_json(file)
    except UnreadableInput as fault:
        raise Corrupt(
            "CHN-001", f"{file} cannot be read: {fault}", "a proof is the output of `holdfast chain prove`"
        ) from fault


def _print_chain(chain: HeaderChain, keys: frozenset[bytes]) -> None:
    header = chain.head.header
    blocks, transactions = pluralize(header.height, "block"), pluralize(chain.transactions, "transaction")
    print(f"valid: {blocks} of chain {header.chain_id}, {transactions}, every link and signature is valid")
    if header.height:
        print(f"head    {chain.head.hash.hex()}, {format_time(header.time_ms)}")
    for key, first in chain.proposers.items():
        print(f"signed  {key.hex()} from block {first} on{_trust_hint(keys)}")


def _print_proved(proved: ProvedTransaction, keys: frozenset[bytes]) -> None:
    header = proved.signed.header
    print(f"true: {proved.kind} of {proved.subject.hex()} is event {proved.event} of chain {header.chain_id}")
    print(f"block   {header.height}, {proved.signed.hash.hex()}, {format_time(header.time_ms)}")
    print(f"signed  {header.proposer.hex()}{_trust_hint(keys)}")


def _trust_hint(keys: frozenset[bytes]) -> str:
    return ", which you trust" if keys else "; is that the proposer you trust? pass it with --key"


def _exit(message: str, code: int) -> None:
    print(message, file=sys.stderr)
    raise typer.Exit(code)
