"""`holdfast verify --growth`: a result's proof against a newer head, offline, and each falsehood by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.core.ways import Way
from typer.testing import CliRunner

from holdfast.adapters.keys.signing import SigningKey
from holdfast.cli import app
from holdfast.core.chain.acts import Seal
from holdfast.core.merkle import prove_consistency, prove_inclusion
from holdfast.core.result.record import leaf_of
from holdfast.core.values import Height
from holdfast.doors.shapes import plain

pytestmark = pytest.mark.rule("RES-008")
KEY = SigningKey.generate()


def proofs(folder: Path) -> tuple[Path, Path]:
    """A result in block 1, and the growth of the log from there to block 3."""
    way = Way()
    way.funded()
    way.provider()
    leaves = []
    for nonce in range(3):
        job = way.enqueue(nonce)
        way.match()
        way.complete(job)
        leaves.append(leaf_of(way.state.results[job]))
        way.seal(how=Seal(KEY.public, KEY.sign))
    first, head = way.state.chain.recent[Height(1)].block, way.state.chain.head
    shown: dict[str, Any] = {"chain_id": 1337, "block": first, "leaf": leaves[0], "index": 0, "size": 1}
    proof = shown | {"path": prove_inclusion(leaves[:1], 0)}
    growth = {"chain_id": 1337, "first": first, "second": head, "path": prove_consistency(leaves, 1)}
    return _written(folder / "proof.json", proof), _written(folder / "growth.json", growth)


def _written(path: Path, values: object) -> Path:
    path.write_text(json.dumps(plain(values)))
    return path


def verified(*told: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["verify", *map(str, told), "--key", KEY.public.hex()])
    return done.exit_code, done.stdout + done.stderr


def test_a_newer_head_still_has_the_result_in_its_log(tmp_path: Path) -> None:
    proof, growth = proofs(tmp_path)
    code, said = verified(proof, "--growth", growth)
    assert (code, "still in that of block 3" in said) == (0, True), said


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda told: told["path"].reverse() or told["path"].pop(), "is not the beginning of that of block 3"),
        (lambda told: told["second"].update(signature="00" * 64), "block 3 is not signed by its proposer"),
        (lambda told: told.update(first=told["second"]), "not at the result's"),
    ],
)
def test_a_forged_growth_is_named(tmp_path: Path, change: Any, says: str) -> None:
    proof, growth = proofs(tmp_path)
    told = json.loads(growth.read_text())
    change(told)
    growth.write_text(json.dumps(told))
    code, said = verified(proof, "--growth", growth)
    assert (code, says in said) == (1, True), said
