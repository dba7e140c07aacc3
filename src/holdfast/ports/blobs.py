"""What blobs and their archive need from the world (BLB-001, ARC-004), as Protocols."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Digest, Height, TaskId


class KzgWork(NamedTuple):
    """What a block says of a blob's bytes (BLB-001)."""

    commitment: bytes
    proof: bytes
    keccak: Digest


class Kzg(Protocol):
    """EIP-4844's commitments, computed outside of the event loop and its process (BLB-001)."""

    async def commit(self, blob: bytes) -> KzgWork: ...

    async def verify(self, blobs: Sequence[tuple[bytes, KzgWork]]) -> list[bool]:
        """Of each blob, whether its proof and its hash are those of its bytes."""
        ...

    async def close(self) -> None: ...


class Decryptor(Protocol):
    """Decrypts the bytes of one result part by part; Corrupt where any bit of them was changed."""

    def feed(self, raw: bytes) -> bytes: ...
    def finish(self) -> bytes: ...


class ArchiveCipher(Protocol):
    """Encrypts private bytes before they leave the node (BLB-003): the same bytes of a task encrypt to the same."""

    @property
    def id(self) -> int: ...
    def encrypted_size(self, size: int) -> int: ...
    def encrypt(self, task_id: TaskId, digest: Digest, raw: bytes) -> bytes: ...
    def key_of(self, task_id: TaskId, digest: Digest) -> bytes: ...
    def decryptor(self, task_id: TaskId, digest: Digest) -> Decryptor: ...


class PackName(NamedTuple):
    """The blobs of one block, by its height and its hash."""

    height: Height
    block_hash: bytes


class BlobFiles(Protocol):
    """The bytes of blobs on this node: loose until their block is final, then one pack for each block."""

    async def put(self, versioned_hash: Digest, blob: bytes) -> None:
        """Durable when this returns."""
        ...

    async def read(self, pack: PackName, number: int, versioned_hash: Digest, keccak: Digest) -> bytes | None:
        """The bytes, from the pack or loose, checked by their hash: Corrupt where they differ."""
        ...

    async def write_pack(self, pack: PackName, blobs: Sequence[tuple[Digest, Digest]]) -> None:
        """Put loose blobs (versioned hash, Keccak) into a pack, then delete them; nothing where the pack exists."""
        ...

    async def delete_pack(self, pack: PackName, blobs: Collection[Digest] = ()) -> bool:
        """Delete it, and those of its blobs that are loose: False where nothing was there."""
        ...

    async def delete_loose(self, except_: Collection[Digest]) -> int:
        """Delete loose blobs that no block has and none will have."""
        ...

    async def packs(self) -> list[PackName]: ...

    async def usage(self) -> int:
        """How many bytes are held in total."""
        ...


class ItemUpload(NamedTuple):
    """A signed data item on its way to an archive (ARC-002)."""

    id: str
    raw: bytes
    """The whole item."""
    place: str
    """Chain, height and index, as a key: for whoever looks for the items of a height."""
    data: bytes = b""
    tags: tuple[tuple[bytes, bytes], ...] = ()
    """What the item is made of, for an archive that signs items itself …"""
    is_retry: bool = False
    """… and whether an earlier attempt may have stored it already."""


class ArchiveReader(Protocol):
    """An archive as a follower uses it: it finds and reads, and stores nothing."""

    @property
    def id(self) -> str: ...

    async def open(self) -> None:
        """Before the first use, and again at will."""
        ...

    async def fetch(self, locator: str) -> bytes | None:
        """The data of the item; None where the archive does not have it."""
        ...

    async def find(self, place: str, versioned_hash: Digest) -> Sequence[str]:
        """The locators of items that say they are this blob, by their place (chain, height, index) or their tags."""
        ...

    async def close(self) -> None: ...


class ArchiveProvider(ArchiveReader, Protocol):
    """Somewhere that stores items (ARC-004). Storing the same item again changes nothing."""

    def locator_of(self, item_id: str) -> str: ...

    async def store(self, item: ItemUpload) -> Refused | str | None:
        """Durable when this returns None, or a locator where that is not `locator_of` its id.

        Refused where our credentials are not accepted. Unavailable: try again.
        """
        ...


class Archive(Protocol):
    """The cold tier (TIER-001): an archive of bytes that the node may delete."""

    async def holds(self, digests: Sequence[tuple[Digest, int]]) -> dict[Digest, str]:
        """The digests that are archived, verified by reading them back, each with its locator."""
        ...
