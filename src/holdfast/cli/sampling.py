"""Whether a large result is available, as a light client finds out (DA-001): a few shares of its own drawing."""

from __future__ import annotations

import secrets
import sys
from typing import Any, Final

from holdfast.adapters.keys.signing import verify as check_signature
from holdfast.cli.asking import Asked
from holdfast.client import NodeRefused
from holdfast.core.da.commit import Sample
from holdfast.core.da.sample import Availability, drawn, judge
from holdfast.core.da.shares import count_of
from holdfast.engine import resultproof, shareproof
from holdfast.engine.headers import Untrue

SEED_BYTES: Final = 16


async def sampled(node: Asked, task_id: str, samples: int, seed: bytes | None, keys: frozenset[bytes]) -> Availability:
    """Ask for shares that follow from the seed, and check each against the commitment in the signed block."""
    shown = await node.call("cap.proveResult", task_id=task_id)
    leaf = resultproof.check(resultproof.read(shown, "the node's proof"), check_signature, keys)
    if leaf.task_id.hex() != task_id:
        raise Untrue(f"the node's proof is of another task, {leaf.task_id.hex()}")
    if leaf.da_commitment is None:
        raise Untrue("this result is not pinned: the chain holds no commitment to its bytes")
    total = count_of(leaf.size)
    asked = drawn(leaf.da_commitment, seed if seed is not None else secrets.token_bytes(SEED_BYTES), total, samples)
    got = {index: await _share(node, task_id, index) for index in asked}
    return judge(leaf.da_commitment, total, asked, got)


async def _share(node: Asked, task_id: str, index: int) -> Sample | None:
    try:
        shown: Any = await node.call("da.proveShares", task_id=task_id, start=index)
    except NodeRefused as no:
        print(f"share {index}: {no}", file=sys.stderr)
        return None
    return shareproof.read(shown, "the node's proof")


def told(found: Availability) -> dict[str, object]:
    """The answer as a person reads it."""
    part = f"{found.missing_ppm / 10_000:g} %"
    sure = (
        f"{found.confidence_ppm} ppm sure that less than {part} of it is missing" if found.is_good else "not available"
    )
    record: dict[str, object] = {"shares": found.total, "sampled": found.sampled, "answer": sure}
    return record | {f"share {index}": why for index, why in found.refused.items()}
