"""The invariants can fail: each seeded fault of the spool is detected by the invariant that is named with it."""

from __future__ import annotations

import re
import sys

import pytest
from tests.spool.crash.invariants import Invariant
from tests.spool.crash.mutant_loader import broken_invariant, mutated_sources
from tests.spool.crash.mutants import MUTANTS, SpoolMutant

from holdfast import spool

SOUND = ("segments: faults in oE", "plain: crashes in oBHX", "segments: crashes in oBH", "plain: damage in oBEBE")


def name_of(mutant: SpoolMutant) -> str:
    return re.sub(r"\W+", "-", mutant.says)


@pytest.mark.rule("SP-002", "SP-ACK-001", "SP-RET-002", "SP-CRASH-002", "SP-CRASH-003")
@pytest.mark.parametrize("mutant", MUTANTS, ids=name_of)
def test_a_seeded_fault_is_seen_by_its_invariant(mutant: SpoolMutant) -> None:
    assert broken_invariant(mutant.seen_in, mutated_sources(mutant)) == mutant.invariant


@pytest.mark.parametrize("walk", SOUND)
def test_without_a_fault_all_invariants_hold(walk: str) -> None:
    assert broken_invariant(walk, {}) is None


def test_a_seeded_fault_leaves_nothing_behind() -> None:
    before = dict(sys.modules)
    assert broken_invariant("plain: crashes in oE", mutated_sources(MUTANTS[0])) == Invariant(
        "SP-002", "what was spooled is there"
    )
    assert {name: sys.modules.get(name) for name in before} == before
    assert sys.modules["holdfast"].spool is spool
    assert broken_invariant("plain: crashes in oE", {}) is None
