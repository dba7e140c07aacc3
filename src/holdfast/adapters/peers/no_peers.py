"""A network of one node: no peer to ask, none to tell."""

from __future__ import annotations

from typing import NoReturn

from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import Height


class NoPeers:
    """What a node has that names no peers."""

    def names(self) -> list[str]:
        return []

    async def final_height(self, peer: str) -> Height:
        self._refuse(peer)

    async def package(self, peer: str, _: Height) -> bytes | None:
        self._refuse(peer)

    async def blob(self, peer: str, _: Height, __: int) -> bytes | None:
        self._refuse(peer)

    async def notices(self, peer: str, _: Height) -> list[bytes]:
        self._refuse(peer)

    async def broadcast(self, message: bytes) -> None:
        """Followers ask for notices."""

    def _refuse(self, peer: str) -> NoReturn:
        raise Unavailable("SYN-001", f"this node has no peer {peer!r:.80}")
