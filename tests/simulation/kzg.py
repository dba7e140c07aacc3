"""KZG without a curve: hashes in the place of commitments, so that no test waits for a trusted setup."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from holdfast.adapters.keys.keccak import keccak_256
from holdfast.core.base.values import Digest
from holdfast.ports.blobs import KzgWork


class SimulatedKzg:
    """The same answers as the real one gives to honest and to changed bytes."""

    def __init__(self) -> None:
        self.commits = 0

    async def commit(self, blob: bytes) -> KzgWork:
        self.commits += 1
        return work_of(blob)

    async def verify(self, blobs: Sequence[tuple[bytes, KzgWork]]) -> list[bool]:
        return [work_of(blob) == work for blob, work in blobs]

    async def close(self) -> None:
        pass


def work_of(blob: bytes) -> KzgWork:
    commitment = sha256(b"commitment" + blob).digest() + bytes(16)
    return KzgWork(commitment, sha256(b"proof" + commitment).digest() + bytes(16), Digest(keccak_256(blob)))
