"""A folder of headers: written beside a running node, gone on with later, read by anybody without a node (CHN-001).

    manifest.json                which chain, where it ends, who has signed
    headers-000000000001.jsonl   blocks 1 to 10 000, one line each; the next file begins at 10 001

The manifest is written last and says what counts: lines after its head are left by an export that was cut.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import msgspec

from holdfast.core.chain.header import Signed, Verify, genesis_hash, genesis_signed
from holdfast.core.refusal import Corrupt, Refused
from holdfast.core.values import ChainId, Height
from holdfast.engine.headers import Links, Untrue, hex_bytes, line_of, read_line
from holdfast.ports import Files

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
PER_FILE: Final = 10_000
Progress = Callable[[Height], None]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a folder of headers holds; bytes are hex."""

    format: int = FORMAT
    chain_id: int
    genesis: str
    blocks: int
    head: str
    proposers: dict[str, int] = {}
    """Who has signed, and from which block on."""


class Source(msgspec.Struct, frozen=True):
    """A chain to export: how far it goes and how it is read."""

    chain_id: ChainId
    head: Signed
    finalized: Height
    at: Callable[[Height], Awaitable[Signed | None]]
    """The block of a height on the active chain."""
    after: Callable[[Height], AsyncIterator[Signed]]
    """The blocks of the active chain above a height, in order."""


# ------------------------------------------------------------------------------------------------ reading


async def read_manifest(files: Files) -> Manifest | None:
    """None where there is none; Corrupt where it cannot be read."""
    raw = await files.read(MANIFEST)
    if raw is None:
        return None
    try:
        found = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise Corrupt("CHN-001", f"{MANIFEST} cannot be read: {fault}", "get another copy") from fault
    if found.format != FORMAT or not 0 <= found.chain_id < 2**64 or found.blocks < 0:
        raise Corrupt("CHN-001", f"{MANIFEST} is not one this program knows", "it may come from a newer Holdfast")
    return found


def name_of(height: int) -> str:
    """The file that holds this block."""
    return f"headers-{(height - 1) // PER_FILE * PER_FILE + 1:012d}.jsonl"


async def lines(files: Files, first: int, last: int) -> AsyncIterator[tuple[int, bytes]]:
    """The lines of these blocks, each with its height; Corrupt where one is missing."""
    height = first
    while height <= last:
        name = name_of(height)
        begin = (height - 1) // PER_FILE * PER_FILE + 1
        found = (await files.read(name) or b"").split(b"\n")
        end = min(last, begin + PER_FILE - 1)
        if len(found) - 1 < end - begin + 1:
            missing = max(height, begin + len(found) - 1)
            raise Corrupt("CHN-001", f"block {missing} is missing: {name} ends before it", "get another copy")
        for at in range(height, end + 1):
            yield at, found[at - begin]
        height = end + 1


async def verify(
    files: Files, check: Verify, keys: frozenset[bytes] = frozenset(), progress: Progress | None = None
) -> Links:
    """All headers of a folder, from genesis to its head; Untrue names the first that does not fit.

    Corrupt where something cannot be read.
    """
    manifest = await read_manifest(files)
    if manifest is None:
        raise Corrupt("CHN-001", f"no {MANIFEST} there", "name a folder that holdfast chain export made")
    chain_id = ChainId(manifest.chain_id)
    if manifest.genesis != genesis_hash(chain_id).hex():
        raise Untrue(f"{MANIFEST}: chain {chain_id} does not begin with {manifest.genesis}")
    links = Links(chain_id, check, keys)
    async for height, raw in lines(files, 1, manifest.blocks):
        links.take(read_line(raw, f"block {height}"))
        if progress is not None:
            progress(Height(height))
    if links.head.hash.hex() != manifest.head:
        raise Untrue(f"{MANIFEST}: block {manifest.blocks} is {links.head.hash.hex()}, not {manifest.head}")
    if {key.hex(): height for key, height in links.proposers.items()} != manifest.proposers:
        raise Untrue(f"{MANIFEST}: names other proposers than those who have signed")
    return links


# ------------------------------------------------------------------------------------------------ writing


async def export(files: Files, source: Source, check: Verify, progress: Progress | None = None) -> Manifest | Refused:
    """Bring the folder up to the chain's head: only what is new is read, and full files are never written again.

    CHN-003: blocks that were taken back since the last time are taken out again.
    """
    have = await _have(files, source.chain_id)
    if isinstance(have, Refused):
        return have
    shared = await _shared(files, source, have)
    if isinstance(shared, Refused):
        return shared
    if shared.header.height < have.blocks:
        have = _cut(have, shared)  # said first: from now on the lines of blocks that are gone do not count
        await _say(files, have)
    links = Links(source.chain_id, check, at=shared)
    links.proposers = {bytes.fromhex(key): Height(first) for key, first in have.proposers.items()}
    await _append(files, source, links, progress)
    done = _manifest(source.chain_id, links)
    await _say(files, done)
    for name in await files.names():
        if name.startswith("headers-") and (done.blocks == 0 or name > name_of(done.blocks)):
            await files.delete(name)
    return done


async def _have(files: Files, chain_id: ChainId) -> Manifest | Refused:
    found = await read_manifest(files)
    if found is None:
        if await files.names():
            return Refused("CHN-001", "this folder holds other files", "name a new one, or one with an earlier export")
        return _manifest(chain_id, Links(chain_id, lambda *_: False))
    if found.chain_id != chain_id:
        return Refused("CHN-001", f"this folder holds headers of chain {found.chain_id}", "name another folder")
    return found


async def _shared(files: Files, source: Source, have: Manifest) -> Signed | Refused:
    """The highest block that the folder and the chain have both."""
    height = min(have.blocks, source.head.header.height)
    while height > 0:
        [raw] = [raw async for _, raw in lines(files, height, height)]
        ours, theirs = read_line(raw, f"block {height}"), await source.at(Height(height))
        if theirs is not None and theirs == ours:
            return ours
        if height <= source.finalized:
            says = f"block {height} of this folder is another one, and it was final"
            return Refused("CHN-005", says, "one of the two is not the chain it says: keep both, verify both")
        height -= 1
    return genesis_signed(source.chain_id)


def _cut(have: Manifest, head: Signed) -> Manifest:
    height = head.header.height
    kept = {key: first for key, first in have.proposers.items() if first <= height}
    return msgspec.structs.replace(have, blocks=height, head=head.hash.hex(), proposers=kept)


def _manifest(chain_id: ChainId, links: Links) -> Manifest:
    signers = {key.hex(): int(height) for key, height in links.proposers.items()}
    head, genesis = links.head, genesis_hash(chain_id).hex()
    return Manifest(
        chain_id=chain_id, genesis=genesis, blocks=head.header.height, head=head.hash.hex(), proposers=signers
    )


async def _append(files: Files, source: Source, links: Links, progress: Progress | None) -> None:
    height = links.head.header.height
    begin = height // PER_FILE * PER_FILE + 1
    kept = [raw async for _, raw in lines(files, begin, height)]
    there = await files.read(name_of(begin))
    async for signed in source.after(height):
        links.take(signed)
        kept.append(line_of(signed))
        if len(kept) == PER_FILE:
            await files.replace(name_of(begin), _text(kept))
            begin, kept, there = begin + PER_FILE, [], None
        if progress is not None:
            progress(signed.header.height)
    if kept and _text(kept) != there:
        await files.replace(name_of(begin), _text(kept))


def _text(kept: list[bytes]) -> bytes:
    return b"\n".join(kept) + b"\n"


async def _say(files: Files, manifest: Manifest) -> None:
    await files.replace(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")


def keys_of(written: list[str]) -> frozenset[bytes]:
    """Public keys as somebody wrote them; Corrupt where one is none."""
    keys = frozenset(hex_bytes(key.strip().lower(), f"key {key!r:.80}") for key in written)
    if wrong := [key.hex() for key in keys if len(key) != 32]:
        raise Corrupt(
            "CHN-001", f"key {wrong[0]!r:.80} does not have 32 bytes", "holdfast chain head shows the proposer's"
        )
    return keys
