"""What is told of JSON before it is decoded: how deep it is, and how many values it holds (SEC-001)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.system.json_depth import has_more_values, is_nested_deeper

pytestmark = pytest.mark.rule("SEC-001")
VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='ab,:[]{}"\\', max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


def count(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(1 + count(each) for each in value.values())
    return 1 + sum(map(count, value)) if isinstance(value, list) else 1


@given(VALUES)
def test_what_is_within_the_limit_is_never_refused(value: Any) -> None:
    """Signs inside of texts do not count, whatever they are; empty lists and objects may count one more."""
    raw = json.dumps(value).encode()
    assert not has_more_values(raw, 2 * count(value) + 2)


@pytest.mark.parametrize(
    "raw",
    [
        b"[" + b"[]," * 5_000 + b"1]",
        b"[" + b'"",' * 5_000 + b"1]",
        b"{" + b",".join(b'"%d":1' % n for n in range(5_000)) + b"}",
        b"[" + b'"\\\\",' * 5_000 + b"1]",
        b"[" * 5_000,
        b'"' * 20_000 + b"," * 5_000,
    ],
)
def test_what_is_far_beyond_it_is_refused_before_it_is_decoded(raw: bytes) -> None:
    assert has_more_values(raw, 4_096)


def test_a_long_text_full_of_signs_is_one_value() -> None:
    raw = json.dumps({"prompt": '{"a": [1, 2, "b"]},' * 50_000}).encode()
    assert not has_more_values(raw, 4_096)
    assert not is_nested_deeper(raw, 4)


@pytest.mark.parametrize("before", range(8))
def test_a_text_of_signs_that_the_beginning_cuts_anywhere_is_one_value(before: int) -> None:
    raw = json.dumps({"a" * before: '\\",:[{' * 30_000}).encode()
    assert not has_more_values(raw, 64)
