"""Real KZG in a process of its own: what it commits to, it verifies; another setup is refused (BLB-001)."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.adapters.keys.signing import SigningKey
from holdfast.adapters.kzg.pool import KzgPool
from holdfast.adapters.kzg.trusted_setup import check_setup
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import Digest
from holdfast.core.blob.framing import pack_payload, versioned_hash
from holdfast.ports.blobs import KzgWork
from holdfast.ports.sync import SignedBytes

ZERO_COMMITMENT = b"\xc0" + bytes(47)
"""The point at infinity: the commitment of a blob of zeros."""


@pytest.mark.rule("BLB-001")
async def test_commitments_are_those_of_eip_4844_and_lies_are_found() -> None:
    pool = KzgPool(1)
    try:
        blob = pack_payload(bytes(range(256)) * 100)
        work, zeros = await asyncio.gather(pool.commit(blob), pool.commit(pack_payload(b"")))
        assert (zeros.commitment, zeros.proof) == (ZERO_COMMITMENT, ZERO_COMMITMENT)
        assert (
            versioned_hash(zeros.commitment).hex() == "010657f37554c781402a22917dee2f75def7ab966d7b770905398eba3c444014"
        )
        other = pack_payload(b"other")
        no_point = KzgWork(b"\xff" * 48, work.proof, work.keccak)
        wrong_hash = work._replace(keccak=Digest(bytes(32)))
        lies = [(blob, work), (other, work), (blob, no_point), (blob, wrong_hash)]
        assert await pool.verify(lies) == [True, False, False, False]
        assert await pool.verify([(blob, work)] * 2) == [True, True]
        (child,) = pool._children
        assert os.getpriority(os.PRIO_PROCESS, child.process_id or 0) >= 10
        child.kill()
        with pytest.raises(Unavailable, match="BLB-001"):
            await pool.verify([(blob, work)])
    finally:
        await pool.close()


@pytest.mark.rule("NTC-002")
async def test_signatures_are_verified_in_a_process_of_their_own_without_the_trusted_setup() -> None:
    key, pool = SigningKey.from_seed(bytes(32)), KzgPool(1)
    try:
        good = SignedBytes(key.public, b"said", key.sign(b"said"))
        lies = [good._replace(message=b"not said"), good._replace(key=bytes(31)), good._replace(signature=b"")]
        assert await pool.verify_signatures([good, *lies, good]) == [True, False, False, False, True]
        assert await pool.verify_signatures([]) == []
        (child,) = pool._children
        assert child.process_id not in (None, os.getpid())
        child.kill()
        with suppress(Unavailable):  # whoever asks before its death is noticed
            await pool.verify_signatures([good])
        assert await pool.verify_signatures([good]) == [True]  # in another process
    finally:
        await pool.close()


@pytest.mark.rule("BLB-001")
def test_another_trusted_setup_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "setup.txt"
    with pytest.raises(Unavailable, match="cannot be read"):
        check_setup(file)
    file.write_text("4096\n65\n")
    with pytest.raises(Unavailable, match="not the mainnet's"):
        check_setup(file)
