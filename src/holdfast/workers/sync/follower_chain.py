"""The chain of a follower, as its parts share it: loaded once, extended by one block at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import ChainId, Height, Network
from holdfast.core.chain.header import genesis_signed
from holdfast.core.sync.check_package import CheckedPackage
from holdfast.core.sync.followed import FollowedBlob, FollowedChain
from holdfast.core.validator.model import ValidatorSet
from holdfast.ports.sync import FollowerStore


class FollowerChain:
    """Head and validators. The trust root are the keys that the operator names: they count from the first block on."""

    def __init__(self, store: FollowerStore, chain_id: ChainId, network: Network, keys: Sequence[bytes]) -> None:
        validators = ValidatorSet({key: Height(1) for key in keys}, {}, {})
        self._genesis = FollowedChain(genesis_signed(chain_id, network), validators)
        self._known: FollowedChain | None = None
        self.store, self.chain_id = store, chain_id
        self.changing = asyncio.Lock()
        """Held by whoever reads rows and stores them changed."""

    async def get(self) -> FollowedChain:
        if self._known is None:
            self._known = self._checked(await self.store.chain() or self._genesis)
        return self._known

    def _checked(self, known: FollowedChain) -> FollowedChain:
        """A folder goes on with the keys that it was begun with."""
        if strange := self._genesis.validators.since.keys() - known.validators.since.keys():
            message = f"this folder follows a chain that did not begin with {sorted(strange)[0].hex()}"
            raise Unavailable("SYN-001", message, "name another folder, or the keys that it was begun with")
        return known

    async def change(self, blobs: Sequence[FollowedBlob], **changes: Any) -> list[FollowedBlob]:
        """Rows as they are now, with these fields changed, unless a record became another one meanwhile."""
        async with self.changing:
            now = await self.store.blobs(blobs[0].height)
            rows = [now[blob.number] for blob in blobs]
            if all(
                (row.status, row.locator) == (blob.status, blob.locator) for row, blob in zip(rows, blobs, strict=True)
            ):
                rows = [msgspec.structs.replace(row, **changes) for row in rows]
                await self.store.update(rows)
        return rows

    async def append(self, checked: CheckedPackage, blobs: Sequence[FollowedBlob]) -> None:
        await self.store.append(checked.signed, checked.payload, blobs, checked.validators)
        self._known = FollowedChain(checked.signed, checked.validators)
