"""A folder of headers: exported beside a running node, extended later, verified without a node (CHN-001).

    manifest.json                the chain, its head, and the keys that signed
    headers-000000000001.jsonl   blocks 1 to 10 000, one line each; the next file begins at 10 001

The manifest is written last. Lines above its head come from an interrupted export and do not count.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import msgspec

from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.values import ChainId, Digest, Height, VerifySignature
from holdfast.core.chain.header import SignedHeader, genesis_signed, network_of
from holdfast.lightclient.headers import (
    HeaderChain,
    VerificationFailed,
    encode_line,
    is_u64,
    parse_hex,
    parse_line,
    unreadable,
)
from holdfast.ports import Files

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
PER_FILE: Final = 10_000
HeightCallback = Callable[[Height], None]


class HeaderManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a folder of headers; bytes are hex."""

    format: int = FORMAT
    chain_id: int
    genesis: str
    blocks: int
    head: str
    proposers: dict[str, int] = {}
    """The keys that signed, and the first block of each."""


class HeaderSource(msgspec.Struct, frozen=True):
    """A chain to export: its head, and how its blocks are read."""

    genesis: SignedHeader
    head: SignedHeader
    finalized: Height
    block_at: Callable[[Height], Awaitable[SignedHeader | None]]
    """The block at a height of the active chain."""
    blocks_after: Callable[[Height], AsyncIterator[SignedHeader]]
    """The blocks of the active chain above a height, in order."""


# ------------------------------------------------------------------------------------------------ reading


async def read_manifest(files: Files) -> HeaderManifest | None:
    """None where there is none; Corrupt where it cannot be read."""
    raw = await files.read(MANIFEST)
    if raw is None:
        return None
    try:
        manifest = msgspec.json.decode(raw, type=HeaderManifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise unreadable(MANIFEST, str(fault)) from fault
    if manifest.format != FORMAT or not is_u64(manifest.chain_id) or manifest.blocks < 0:
        raise Corrupt("CHN-001", f"{MANIFEST} has an unknown format", "it may come from a newer Holdfast")
    return manifest


def file_name(height: int) -> str:
    """The file of this block."""
    return f"headers-{(height - 1) // PER_FILE * PER_FILE + 1:012d}.jsonl"


async def read_lines(files: Files, first: int, last: int) -> AsyncIterator[tuple[int, bytes]]:
    """The lines of these blocks, each with its height; Corrupt where one is missing."""
    height = first
    while height <= last:
        name = file_name(height)
        begin = (height - 1) // PER_FILE * PER_FILE + 1
        lines = (await files.read(name) or b"").split(b"\n")
        end = min(last, begin + PER_FILE - 1)
        if len(lines) - 1 < end - begin + 1:
            missing = max(height, begin + len(lines) - 1)
            raise Corrupt("CHN-001", f"block {missing} is missing: {name} ends before it", "get another copy")
        for at in range(height, end + 1):
            yield at, lines[at - begin]
        height = end + 1


async def verify(
    files: Files, check: VerifySignature, keys: frozenset[bytes] = frozenset(), progress: HeightCallback | None = None
) -> HeaderChain:
    """Check all headers of a folder, from genesis to its head.

    VerificationFailed names the first header that is wrong; Corrupt where something cannot be read.
    """
    manifest = await read_manifest(files)
    if manifest is None:
        raise Corrupt("CHN-001", f"there is no {MANIFEST}", "name a folder that holdfast chain export made")
    chain_id = ChainId(manifest.chain_id)
    network = network_of(chain_id, Digest(parse_hex(manifest.genesis, f"{MANIFEST}: genesis")))
    if network is None:
        raise VerificationFailed(f"{MANIFEST}: chain {chain_id} does not begin with {manifest.genesis}")
    links = HeaderChain(genesis_signed(chain_id, network), check, keys)
    async for height, raw in read_lines(files, 1, manifest.blocks):
        links.append(parse_line(raw, f"block {height}"))
        if progress is not None:
            progress(Height(height))
    if links.head.hash.hex() != manifest.head:
        raise VerificationFailed(f"{MANIFEST}: block {manifest.blocks} is {links.head.hash.hex()}, not {manifest.head}")
    if {key.hex(): height for key, height in links.proposers.items()} != manifest.proposers:
        raise VerificationFailed(f"{MANIFEST}: names other proposers than the keys that signed")
    return links


# ------------------------------------------------------------------------------------------------ writing


async def export(
    files: Files, source: HeaderSource, check: VerifySignature, progress: HeightCallback | None = None
) -> HeaderManifest | Refused:
    """Bring the folder up to the chain's head. Only new blocks are read, and full files are not written again.

    CHN-003: blocks that were rolled back since the last export are removed.
    """
    have = await _existing_manifest(files, source.genesis)
    if isinstance(have, Refused):
        return have
    shared = await _common_block(files, source, have)
    if isinstance(shared, Refused):
        return shared
    if shared.header.height < have.blocks:
        have = _truncate(have, shared)  # first: from now on the lines of rolled-back blocks do not count
        await _write_manifest(files, have)
    links = HeaderChain(shared, check)
    links.proposers = {bytes.fromhex(key): Height(first) for key, first in have.proposers.items()}
    await _append(files, source, links, progress)
    done = _make_manifest(source.genesis, links)
    await _write_manifest(files, done)
    for name in await files.names():
        if name.startswith("headers-") and (done.blocks == 0 or name > file_name(done.blocks)):
            await files.delete(name)
    return done


async def _existing_manifest(files: Files, genesis: SignedHeader) -> HeaderManifest | Refused:
    manifest = await read_manifest(files)
    if manifest is None:
        if await files.names():
            return Refused("CHN-001", "this folder holds other files", "name a new one, or one with an earlier export")
        return _make_manifest(genesis, HeaderChain(genesis, lambda *_: False))
    if (manifest.chain_id, manifest.genesis) != (genesis.header.chain_id, genesis.hash.hex()):
        return Refused("CHN-001", f"this folder holds headers of chain {manifest.chain_id}", "name another folder")
    return manifest


async def _common_block(files: Files, source: HeaderSource, have: HeaderManifest) -> SignedHeader | Refused:
    """The highest block that both the folder and the chain have."""
    height = min(have.blocks, source.head.header.height)
    while height > 0:
        [raw] = [raw async for _, raw in read_lines(files, height, height)]
        ours, theirs = parse_line(raw, f"block {height}"), await source.block_at(Height(height))
        if theirs is not None and theirs == ours:
            return ours
        if height <= source.finalized:
            message = f"block {height} of this folder differs from the chain's, and it was final"
            return Refused("CHN-005", message, "one of the two chains is false: keep both and verify both")
        height -= 1
    return source.genesis


def _truncate(have: HeaderManifest, head: SignedHeader) -> HeaderManifest:
    height = head.header.height
    kept = {key: first for key, first in have.proposers.items() if first <= height}
    return msgspec.structs.replace(have, blocks=height, head=head.hash.hex(), proposers=kept)


def _make_manifest(genesis: SignedHeader, links: HeaderChain) -> HeaderManifest:
    signers = {key.hex(): int(height) for key, height in links.proposers.items()}
    return HeaderManifest(
        chain_id=genesis.header.chain_id,
        genesis=genesis.hash.hex(),
        blocks=links.head.header.height,
        head=links.head.hash.hex(),
        proposers=signers,
    )


async def _append(files: Files, source: HeaderSource, links: HeaderChain, progress: HeightCallback | None) -> None:
    height = links.head.header.height
    begin = height // PER_FILE * PER_FILE + 1
    kept = [raw async for _, raw in read_lines(files, begin, height)]
    stored = await files.read(file_name(begin))
    async for signed in source.blocks_after(height):
        links.append(signed)
        kept.append(encode_line(signed))
        if len(kept) == PER_FILE:
            await files.replace(file_name(begin), _text(kept))
            begin, kept, stored = begin + PER_FILE, [], None
        if progress is not None:
            progress(signed.header.height)
    if kept and _text(kept) != stored:
        await files.replace(file_name(begin), _text(kept))


def _text(kept: list[bytes]) -> bytes:
    return b"\n".join(kept) + b"\n"


async def _write_manifest(files: Files, manifest: HeaderManifest) -> None:
    await files.replace(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")


def parse_keys(written: list[str]) -> frozenset[bytes]:
    """Public keys in hex; Corrupt where one is not a key."""
    keys = frozenset(parse_hex(key.strip().lower(), f"key {key!r:.80}") for key in written)
    if wrong := [key.hex() for key in keys if len(key) != 32]:
        raise Corrupt(
            "CHN-001", f"key {wrong[0]!r:.80} does not have 32 bytes", "holdfast chain head shows the proposer's"
        )
    return keys
