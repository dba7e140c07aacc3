"""The laws can fail: each seeded fault of the spool is seen, by the law that is named beside it."""

from __future__ import annotations

import re
import sys

import pytest
from tests.spool.crash.laws import Law
from tests.spool.crash.mutants import MUTANTS, Mutant
from tests.spool.crash.seeded import broken_law, changed

from holdfast import spool

SOUND = ("segments: faults in oE", "plain: crashes in oBHX", "segments: crashes in oBH", "plain: damage in oBEBE")


def name_of(mutant: Mutant) -> str:
    return re.sub(r"\W+", "-", mutant.says)


@pytest.mark.rule("SP-002", "SP-ACK-001", "SP-RET-002", "SP-CRASH-002", "SP-CRASH-003")
@pytest.mark.parametrize("mutant", MUTANTS, ids=name_of)
def test_a_seeded_fault_is_seen_by_its_law(mutant: Mutant) -> None:
    assert broken_law(mutant.seen_in, changed(mutant)) == mutant.law


@pytest.mark.parametrize("walk", SOUND)
def test_without_a_fault_all_laws_hold(walk: str) -> None:
    assert broken_law(walk, {}) is None


def test_a_seeded_fault_leaves_nothing_behind() -> None:
    before = dict(sys.modules)
    assert broken_law("plain: crashes in oE", changed(MUTANTS[0])) == Law("SP-002", "what was spooled is there")
    assert {name: sys.modules.get(name) for name in before} == before
    assert sys.modules["holdfast"].spool is spool
    assert broken_law("plain: crashes in oE", {}) is None
