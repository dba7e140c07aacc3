"""What no crash does to a spool, but a bad disk or a bad hand: it opens all the same, and what it lacks is told."""

from __future__ import annotations

import pytest
from tests.counts import counts
from tests.spool.crash.campaign import SETUPS, rare_gc
from tests.spool.crash.corruption import Corruption

pytestmark = pytest.mark.rule("SP-CRASH-002")
HISTORIES = ("oBEBE", "oBEHE", "oBAXEE", "oTEEB", "oBA")
both = pytest.mark.parametrize("name", ["plain", "segments"])


@pytest.mark.parametrize("name", SETUPS)
def test_damage_in_the_middle_is_reported_and_never_passed_over(name: str) -> None:
    rot = Corruption(SETUPS[name])
    for word in HISTORIES:
        rot.damaged(word, counts(12, 1))
    assert rot.judged == rot.states
    assert len(rot.judged) >= counts(500, 4_000)
    assert rot.told >= counts(300, 2_500)


@both
@pytest.mark.rule("SP-006")
def test_every_flipped_bit_of_a_record_that_was_durable_is_reported(name: str) -> None:
    rot = Corruption(SETUPS[name])
    rot.flipped("oBE", 2)
    assert rot.told == len(rot.judged) == len(rot.states) >= 8 * 200


@both
def test_ten_thousand_randomly_damaged_spools_all_open_and_report(name: str) -> None:
    rot = Corruption(SETUPS[name])
    with rare_gc():
        rot.damage_randomly(HISTORIES, 5_000)
    assert rot.judged == rot.states
    assert len(rot.judged) == 5_000
    assert rot.told >= 1_500, "hardly any of them was hurt"
