"""A network with its proposer, which has one final block with blobs, and a way to add followers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.workers.archive.archive_node import archive_policy
from tests.workers.sync.sync_nodes import FollowerNode, ProposerNode

from holdfast.adapters.keys.signing import SigningKey
from holdfast.adapters.peers.local_network import LocalNetwork


class Joined:
    """One proposer, and the followers that a test adds."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.network = folder, LocalNetwork()
        self.proposer = ProposerNode(archive_policy(), folder / "owner", self.network)
        self.followers: dict[str, FollowerNode] = {}

    def add(
        self, name: str, signer: SigningKey | None = None, *, reads_back: bool = True, **policy: Any
    ) -> FollowerNode:
        archive = self.proposer.provider if reads_back else None
        node = self.followers[name] = FollowerNode(self.folder / name, archive, signer, **policy)
        node.open(self.network, name)
        return node

    async def deliver(self, rounds: int = 6) -> None:
        for _ in range(rounds):
            await self.network.deliver()

    async def close(self) -> None:
        for node in self.followers.values():
            await node.close()
        await self.proposer.kill()


@pytest.fixture
async def joined(tmp_path: Path) -> AsyncIterator[Joined]:
    both = Joined(tmp_path)
    await both.proposer.open_with_provider()
    yield both
    await both.close()
