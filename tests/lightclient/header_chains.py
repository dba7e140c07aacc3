"""Chains of headers made by hand, folders that hold them, and a source to export from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from tests.core.blocks import PROPOSER, sign
from tests.simulation.world import SimulatedFiles

from holdfast.core.base.merkle import root
from holdfast.core.base.values import ChainId, EventNo, Height, Network
from holdfast.core.chain.header import Header, SignedHeader, beacon_after, genesis_signed, header_hash
from holdfast.lightclient.header_export import HeaderSource

CHAIN = ChainId(1337)


def follows(before: SignedHeader, salt: int = 0, leaves: tuple[bytes, ...] = (), **changed: Any) -> SignedHeader:
    """The next block; another salt is another block."""
    header = before.header
    values = {
        "chain_id": header.chain_id,
        "height": Height(header.height + 1),
        "parent": before.hash,
        "time_ms": header.time_ms + 1_000 + salt,
        "proposer": PROPOSER,
        "beacon": beacon_after(before.signature),
        "first_event": EventNo(header.last_event + 1),
        "last_event": EventNo(header.last_event + 3),
        "tx_count": len(leaves),
        "tx_root": root(leaves),
    }
    return signed(Header(**{**values, **changed}))


def signed(header: Header) -> SignedHeader:
    return SignedHeader(header, header_hash(header), sign(header_hash(header)))


def chain(length: int, before: SignedHeader | None = None, salt: int = 0) -> list[SignedHeader]:
    """`length` blocks above another one, or above genesis."""
    blocks = [before or genesis_signed(CHAIN, Network.DEVELOPMENT)]
    for _ in range(length):
        blocks.append(follows(blocks[-1], salt))
    return blocks[1:]


def source(blocks: list[SignedHeader], finalized: int = 0, chain_id: ChainId = CHAIN) -> HeaderSource:
    """A node that has these blocks."""

    async def at(height: Height) -> SignedHeader | None:
        return blocks[height - 1] if height <= len(blocks) else None

    async def after(height: Height) -> AsyncIterator[SignedHeader]:
        for block in blocks[height:]:
            yield block

    genesis = genesis_signed(chain_id, Network.DEVELOPMENT)
    head = blocks[-1] if blocks else genesis
    return HeaderSource(genesis, head, Height(finalized), at, after)


class PowerCut(Exception):
    """The machine lost its power."""


class CountingFiles(SimulatedFiles):
    """A folder that says what was written, and whose power fails before a given write."""

    def __init__(self, files: dict[str, bytes] | None = None, writes: int | None = None) -> None:
        super().__init__()
        self.files = dict(files or {})
        self.written: list[str] = []
        self._left = writes

    async def replace(self, name: str, raw: bytes) -> None:
        self._spend()
        self.written.append(name)
        await super().replace(name, raw)

    async def delete(self, name: str) -> None:
        self._spend()
        await super().delete(name)

    def _spend(self) -> None:
        if self._left is not None:
            if self._left == 0:
                raise PowerCut
            self._left -= 1
