"""`holdfast chain verify`: headers and proofs checked on any machine, without a node and without trust in one."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.adapters.files import Folder
from holdfast.adapters.keys.signing import verify as check
from holdfast.cli.asking import Asked, Ca, Data, Place, TokenFile, Url, run
from holdfast.cli.chain.look import counted
from holdfast.cli.chain.reading import ChainReader, Heights
from holdfast.cli.columns import when
from holdfast.cli.papers import Unreadable, json_of
from holdfast.core.refusal import Corrupt, Unavailable
from holdfast.engine import consistency, headerfiles
from holdfast.engine.headers import Links, Proved, Untrue, check_proof, read_proof

FALSE, UNREADABLE = 1, 2


def verify(
    what: Annotated[
        Path | None,
        typer.Argument(metavar="DIR|FILE", help="A folder of headers or a proof. [default: the running node's chain]"),
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(help="Only this proposer may have signed, in hex; several are allowed.")
    ] = None,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Check headers link by link, or a proof of `holdfast chain prove`; a folder or a file needs no node.

    Each header must name the one before it, carry the hash of its own fields, the beacon of the signature before it,
    and a good signature. Who may sign is yours to say, with --key; without it you are told who did.

    Exit code 0: whole. 1: false, with the first block that is and why. 2: cannot be read.
    """
    try:
        _verify(what, headerfiles.keys_of(key or []), Place(data, url, token_file, ca))
    except Untrue as fault:
        _end(f"false: {fault}", FALSE)
    except (Corrupt, Unavailable) as fault:
        _end(f"holdfast: {fault}", UNREADABLE)


def _verify(what: Path | None, keys: frozenset[bytes], place: Place) -> None:
    if what is not None and what.is_file():
        _check_file(what, keys)
        return
    progress = Heights("verifying")
    try:
        if what is None:
            links = run(place, lambda node: _live(node, keys, progress))
        else:
            links = asyncio.run(headerfiles.verify(Folder(what), check, keys, progress))
    finally:
        progress.end()
    _say_whole(links, keys)


async def _live(node: Asked, keys: frozenset[bytes], progress: Heights) -> Links:
    reader = await ChainReader.of(node)
    links = Links(reader.chain_id, check, keys)
    async for signed in reader.after(links.head.header.height):
        links.take(signed)
        progress(signed.header.height)
    return links


def _check_file(file: Path, keys: frozenset[bytes]) -> None:
    """A proof of an admission, or one that the log of results only grew."""
    values = _values(file)
    if isinstance(values, dict) and "second" in values:
        first, second, path = consistency.read_shown(values, str(file))
        consistency.check(first, second, path, check, keys)
        old, new = first.header, second.header
        print(f"true: {old.log_size} results by block {old.height} begin the {new.log_size} by block {new.height}")
        print(f"signed  {new.proposer.hex()}{_trust(keys)}")
        return
    _say_proved(check_proof(*read_proof(values, str(file)), check, keys), keys)


def _values(file: Path) -> object:
    try:
        return json_of(file)
    except Unreadable as fault:
        raise Corrupt("CHN-001", f"{file} cannot be read: {fault}", "a proof is what `chain prove` prints") from fault


def _say_whole(links: Links, keys: frozenset[bytes]) -> None:
    header = links.head.header
    said = f"{counted(header.height, 'block')} of chain {header.chain_id}, {counted(links.transactions, 'transaction')}"
    print(f"whole: {said}, every link and signature is good")
    if header.height:
        print(f"head    {links.head.hash.hex()}, {when(header.time_ms)}")
    for key, first in links.proposers.items():
        print(f"signed  {key.hex()} from block {first} on{_trust(keys)}")


def _say_proved(proved: Proved, keys: frozenset[bytes]) -> None:
    header = proved.signed.header
    print(f"true: {proved.kind} of {proved.subject.hex()} is event {proved.event} of chain {header.chain_id}")
    print(f"block   {header.height}, {proved.signed.hash.hex()}, {when(header.time_ms)}")
    print(f"signed  {header.proposer.hex()}{_trust(keys)}")


def _trust(keys: frozenset[bytes]) -> str:
    return ", as named" if keys else "; is that the proposer you know? name it with --key"


def _end(says: str, code: int) -> None:
    print(says, file=sys.stderr)
    raise typer.Exit(code)
