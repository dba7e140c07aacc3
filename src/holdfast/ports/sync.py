"""What nodes need from each other, and where a follower keeps what it was told (SYN-001), as Protocols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from holdfast.core.base.values import Height
from holdfast.core.chain.header import SignedHeader
from holdfast.core.sync.followed import FollowedBlob, FollowedChain
from holdfast.core.sync.package import BlockPayload
from holdfast.core.validator.model import ValidatorSet


class SignedBytes(NamedTuple):
    """Bytes, the signature over them, and the public key that it should be of."""

    key: bytes
    message: bytes
    signature: bytes


class Signatures(Protocol):
    """Ed25519 signatures that come in numbers, verified outside of the event loop and its process (NTC-002)."""

    async def verify_signatures(self, signed: Sequence[SignedBytes]) -> list[bool]:
        """Of each, whether it is good; Unavailable where the processes failed."""
        ...


class PeerService(Protocol):
    """What a node offers to its peers. Whatever it returns is checked by whoever asked."""

    async def final_height(self) -> Height: ...

    async def package(self, height: Height) -> bytes | None:
        """The block of a final height; None where this node does not have it."""
        ...

    async def blob(self, height: Height, number: int) -> bytes | None:
        """The bytes of a blob, while they are here."""
        ...

    async def notices(self, height: Height) -> Sequence[bytes]:
        """The notices that this node has about a height."""
        ...

    async def receive(self, messages: Sequence[bytes]) -> None:
        """Notices and confirmations in the order of their sender; what is wrong with one is counted, never raised."""
        ...


class Peers(Protocol):
    """The other nodes of a network. Every call may raise Unavailable: that peer is away."""

    def names(self) -> Sequence[str]: ...
    async def final_height(self, peer: str) -> Height: ...
    async def package(self, peer: str, height: Height) -> bytes | None: ...
    async def blob(self, peer: str, height: Height, number: int) -> bytes | None: ...
    async def notices(self, peer: str, height: Height) -> Sequence[bytes]: ...

    async def broadcast(self, message: bytes) -> None:
        """To whoever can be reached, without an answer: senders send again (NTC-004)."""
        ...


class FollowerStore(Protocol):
    """The rows of a follower: whole blocks, durable when a call returns. No row is ever deleted (BLB-002)."""

    async def chain(self) -> FollowedChain | None:
        """None before the first block."""
        ...

    async def append(
        self, signed: SignedHeader, payload: BlockPayload, blobs: Sequence[FollowedBlob], validators: ValidatorSet
    ) -> None:
        """The next block, with its blobs and the set after it, in one transaction."""
        ...

    async def block(self, height: Height) -> tuple[SignedHeader, BlockPayload] | None: ...
    async def blobs(self, height: Height) -> list[FollowedBlob]: ...
    async def update(self, blobs: Sequence[FollowedBlob]) -> None: ...

    async def heights_here(self, after: Height, limit: int) -> list[Height]:
        """Heights above one that have bytes on this node, ascending."""
        ...

    async def close(self) -> None: ...
