"""The work on one blob, in a child process: `ckzg` with the mainnet's trusted setup, which is checked by its hash."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from holdfast.adapters.keys.keccak import keccak_256
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.base.values import Digest
from holdfast.ports.blobs import KzgWork

SETUP_SHA256: Final = "d39b9f2d047cc9dca2de58f264b6a09448ccd34db967881a6713eacacf0f26b7"
SETUP_FILE: Final = "typed_transactions/blob_transactions/kzg_trusted_setup.txt"
NICE: Final = 10
"""The node's own loop comes first."""
_INSTALL: Final = "pip install 'holdfast[blobs]'"


def why_not_installed() -> Refused | None:
    for module in ("ckzg", "eth_account", "Crypto"):
        if find_spec(module) is None:
            return Refused("BLB-001", f"blobs need {module}, which is not installed", _INSTALL, "BadConfig")
    return None


def prepare_process() -> None:
    """In the child, before its first call. The set-up takes seconds, once, when the first blob comes."""
    os.nice(NICE)


@cache
def trusted_setup() -> Any:
    """BLB-001: the mainnet's; Unavailable where the file is missing or another one."""
    import ckzg  # noqa: PLC0415

    spec = find_spec("eth_account")
    if spec is None or spec.origin is None:
        raise Unavailable("BLB-001", "the trusted setup is not installed", _INSTALL)
    path = Path(spec.origin).parent / SETUP_FILE
    check_setup(path)
    return ckzg.load_trusted_setup(str(path), 0)


def check_setup(path: Path) -> None:
    try:
        raw = path.read_bytes()
    except OSError as fault:
        raise Unavailable("BLB-001", f"{path.name} cannot be read: {fault.strerror}", _INSTALL) from fault
    if hashlib.sha256(raw).hexdigest() != SETUP_SHA256:
        raise Unavailable("BLB-001", f"{path.name} is not the mainnet's trusted setup", _INSTALL)


def commit_blob(blob: bytes) -> KzgWork:
    import ckzg  # noqa: PLC0415

    setup = trusted_setup()
    commitment = ckzg.blob_to_kzg_commitment(blob, setup)
    proof = ckzg.compute_blob_kzg_proof(blob, commitment, setup)
    return KzgWork(commitment, proof, Digest(keccak_256(blob)))


def verify_blobs(blobs: Sequence[tuple[bytes, KzgWork]]) -> list[bool]:
    """All at once, which is quicker; one by one only where one of them is false."""
    import ckzg  # noqa: PLC0415

    setup = trusted_setup()
    commitments, proofs = (b"".join(each) for each in zip(*(work[:2] for _, work in blobs), strict=True))
    try:
        raws = b"".join(blob for blob, _ in blobs)
        are_true = ckzg.verify_blob_kzg_proof_batch(raws, commitments, proofs, setup)
    except (RuntimeError, ValueError):  # no point of the curve, no blob
        are_true = False
    if not are_true and len(blobs) > 1:
        return [is_true for each in blobs for is_true in verify_blobs([each])]
    return [bool(are_true) and keccak_256(blob) == work.keccak for blob, work in blobs]
