"""Hints for misspelt names, whatever their length."""

from __future__ import annotations

import pytest

from holdfast.system.did_you_mean import NAME_MAX, did_you_mean

LONG = "x" * NAME_MAX


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cap.getJbo", "did you mean cap.getJob?"),
        ("nothing like it", "none"),
        (LONG + "y" * 1_000_000, f"did you mean {LONG}?"),
    ],
    ids=["near", "far", "long"],
)
@pytest.mark.rule("SEC-001")
def test_the_closest_name_is_named_and_a_long_one_is_cut_before_it_is_compared(name: str, says: str) -> None:
    assert did_you_mean(name, ["cap.getJob", LONG], "none") == says
