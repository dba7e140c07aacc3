"""A result's proof: true on any machine with the proposer's key, and every altered part is named."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.base.merkle_proofs import prove_inclusion
from tests.core.blocks import PROPOSER, verify
from tests.core.core_driver import CoreDriver

from holdfast.api.rpc.params import to_json
from holdfast.core.base.errors import Corrupt
from holdfast.core.base.values import ChainId
from holdfast.core.chain.model import signed_of
from holdfast.core.result import result_digest
from holdfast.core.result.model import leaf_of
from holdfast.lightclient import result_proof
from holdfast.lightclient.headers import VerificationFailed

pytestmark = pytest.mark.rule("RES-008")


def proof_of(place: int, count: int = 5) -> dict[str, Any]:
    """A block with some results in it, and the proof of one of them as the API shows it."""
    core = CoreDriver()
    core.funded()
    core.provider(slots=count)
    for nonce in range(count):
        core.enqueue(nonce)
    core.match()
    for job in list(core.state.leases.by_job):
        core.complete(job, b"output of " + job)
    core.seal()
    leaves = [leaf_of(each) for each in sorted(core.state.results.values(), key=lambda each: each.leaf_index)]
    head, path = core.state.chain.head, prove_inclusion(leaves, place)
    assert signed_of(head, ChainId(1337)).hash == head.hash
    shown = {"chain_id": 1337, "block": head, "leaf": leaves[place], "index": place, "size": count, "path": path}
    return to_json(shown)  # type: ignore[no-any-return]


def checked(values: object, *keys: bytes) -> result_proof.ResultLeaf:
    return result_proof.check(result_proof.parse(values, "the proof"), verify, keys)


@pytest.mark.parametrize("place", range(5))
def test_every_result_of_a_block_is_proved_by_its_proof(place: int) -> None:
    leaf = checked(proof_of(place), PROPOSER)
    assert leaf.result_digest == result_digest(b"output of " + leaf.task_id)
    assert leaf.height == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("block", "height", 2), "does not match its hash"),
        (("block", "result_root", "00" * 32), "does not match its hash"),
        (("block", "signature", "00" * 64), "not signed"),
        (("block", "proposer", "11" * 32), "does not match its hash"),
        (("index", 2), "not in block 1"),
        (("size", 6), "has 5 results"),
        (("path", []), "not in block 1"),
        (("chain_id", 7), "does not match its hash"),
    ],
)
def test_what_was_altered_is_named(change: tuple[Any, ...], says: str) -> None:
    proof = proof_of(1)
    inside = proof if len(change) == 2 else proof[change[0]]
    assert inside[change[-2]] != change[-1]
    inside[change[-2]] = change[-1]
    with pytest.raises(VerificationFailed, match=says):
        checked(proof)


def test_a_proof_of_somebody_else_is_not_believed_and_a_leaf_of_another_result_is_not_in_the_block() -> None:
    with pytest.raises(VerificationFailed, match="which is not one of the given keys"):
        checked(proof_of(0), b"k" * 32)
    proof = proof_of(0)
    digest_at = proof["leaf"].index(checked(proof).result_digest.hex())
    proof["leaf"] = proof["leaf"][:digest_at] + "00" + proof["leaf"][digest_at + 2 :]
    with pytest.raises(VerificationFailed, match="not in block 1"):
        checked(proof)


@pytest.mark.parametrize(
    "change",
    [("leaf", "zz"), ("leaf", "ff"), ("index", -1), ("path", "x"), ("path", [1]), ("block", []), ("size", "1")],
)
def test_what_is_no_proof_is_called_so(change: tuple[str, Any]) -> None:
    with pytest.raises(Corrupt, match="cannot be read"):
        checked(proof_of(0) | {change[0]: change[1]})
    with pytest.raises(Corrupt, match="are expected"):
        checked({key: value for key, value in proof_of(0).items() if key != change[0]})
