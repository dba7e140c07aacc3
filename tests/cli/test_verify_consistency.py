"""`holdfast verify --consistency`: a result's proof against a newer head, offline; each forgery is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.core.base.merkle_proofs import prove_consistency, prove_inclusion
from tests.core.core_driver import CoreDriver
from typer.testing import CliRunner

from holdfast.adapters.keys.signing import SigningKey
from holdfast.api.rpc.params import to_json
from holdfast.cli import app
from holdfast.core.base.values import Height
from holdfast.core.chain.messages import SealBlock
from holdfast.core.result.model import leaf_of

pytestmark = pytest.mark.rule("RES-008")
KEY = SigningKey.generate()


def proofs(folder: Path) -> tuple[Path, Path]:
    """A result in block 1, and a consistency proof of the log from there to block 3."""
    core = CoreDriver()
    core.funded()
    core.provider()
    leaves = []
    for nonce in range(3):
        job = core.enqueue(nonce)
        core.match()
        core.complete(job)
        leaves.append(leaf_of(core.state.results[job]))
        core.seal(how=SealBlock(KEY.public, KEY.sign))
    first, head = core.state.chain.unfinalized[Height(1)].block, core.state.chain.head
    shown: dict[str, Any] = {"chain_id": 1337, "block": first, "leaf": leaves[0], "index": 0, "size": 1}
    proof = shown | {"path": prove_inclusion(leaves[:1], 0)}
    consistency = {"chain_id": 1337, "first": first, "second": head, "path": prove_consistency(leaves, 1)}
    return _written(folder / "proof.json", proof), _written(folder / "consistency.json", consistency)


def _written(path: Path, values: object) -> Path:
    path.write_text(json.dumps(to_json(values)))
    return path


def verified(*told: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["verify", *map(str, told), "--key", KEY.public.hex()])
    return done.exit_code, done.stdout + done.stderr


def test_a_newer_head_still_has_the_result_in_its_log(tmp_path: Path) -> None:
    proof, consistency = proofs(tmp_path)
    code, said = verified(proof, "--consistency", consistency)
    assert (code, "still in the log of block 3" in said) == (0, True), said


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda told: told["path"].reverse() or told["path"].pop(), "is not the beginning of that of block 3"),
        (lambda told: told["second"].update(signature="00" * 64), "block 3 is not signed by its proposer"),
        (lambda told: told.update(first=told["second"]), "not at the result's"),
    ],
)
def test_a_forged_consistency_proof_is_named(tmp_path: Path, change: Any, says: str) -> None:
    proof, consistency = proofs(tmp_path)
    values = json.loads(consistency.read_text())
    change(values)
    consistency.write_text(json.dumps(values))
    code, said = verified(proof, "--consistency", consistency)
    assert (code, says in said) == (1, True), said
