"""Limits of the HTTP server: nesting, rates, and the settings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.world import SimulatedClock

from holdfast.api.http.settings import LEAVES, HttpSettings, faults
from holdfast.api.rate_limit import BUCKETS_MAX, TokenBuckets
from holdfast.api.rpc import jsonrpc
from holdfast.core.base.errors import Refused

pytestmark = pytest.mark.rule("SEC-001")


# ------------------------------------------------------------------------------------------------ nesting


def depth_of(value: object) -> int:
    match value:
        case list():
            return 1 + max(map(depth_of, value), default=0)
        case dict():
            return 1 + max(map(depth_of, value.values()), default=0)
    return 0


def is_too_deep(raw: bytes, depth_max: int) -> bool:
    message = jsonrpc.decode(raw, depth_max=depth_max)
    return isinstance(message, Refused) and message.name == "InvalidRequest"


texts = st.text() | st.text('[]{}"\\ab')
values = st.recursive(
    st.none() | st.integers() | texts, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=60
)


@given(values, st.integers(0, 6), st.booleans())
def test_what_is_nested_too_deep_is_refused_and_nothing_else(value: Any, depth_max: int, is_ascii: bool) -> None:
    raw = json.dumps(value, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    assert is_too_deep(raw, depth_max) == (depth_of(value) > depth_max)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
@pytest.mark.parametrize(("depth", "is_refused"), [(63, False), (64, False), (65, True), (300_000, True)])
def test_depth_has_a_limit(opening: bytes, depth: int, is_refused: bool) -> None:
    closing = b"]" if opening == b"[" else b"}"
    assert is_too_deep(opening * depth + b"1" + closing * depth, 64) == is_refused
    assert is_too_deep(opening * depth, 64) == is_refused


@pytest.mark.parametrize("raw", [b'["' + b"[" * 1_000 + b'"]', b'"' + b'\\"[' * 1_000 + b'"', b'"' + b"[" * 1_000])
def test_brackets_inside_of_text_are_text(raw: bytes) -> None:
    assert not is_too_deep(raw, 4)


# ------------------------------------------------------------------------------------------------ rates


def test_a_bucket_gives_its_burst_and_then_what_time_brings() -> None:
    clock = SimulatedClock()
    buckets = TokenBuckets(clock, per_s=10, burst=3)
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 100]
    clock.monotonic += 99
    assert buckets.take("a") == 1
    clock.monotonic += 1
    assert [buckets.take("a"), buckets.take("a")] == [0, 100]
    clock.monotonic += 1_000_000
    assert [buckets.take("a", 4), buckets.take("a", 3), buckets.take("a")] == [100, 0, 100]


def test_buckets_are_apart_and_few_enough_to_remember() -> None:
    buckets = TokenBuckets(SimulatedClock(), per_s=1, burst=1)
    assert [buckets.take("a"), buckets.take("b"), buckets.take("a")] == [0, 0, 1_000]
    for number in range(BUCKETS_MAX):
        buckets.take(str(number))
    assert buckets.take("a") == 0, "whoever was forgotten begins anew"
    assert buckets.take(str(BUCKETS_MAX - 1)) == 1_000


# ------------------------------------------------------------------------------------------------ settings


def test_what_is_set_by_default_has_no_fault() -> None:
    assert faults(HttpSettings()) == []
    assert set(LEAVES) == set(HttpSettings.__struct_fields__)


def test_reading_the_settings_loads_no_server() -> None:
    """A verb that only reads the configuration starts quickly."""
    asked = (
        "import sys, holdfast.api.http.settings; print('uvicorn' in sys.modules, 'prometheus_client' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"port": 65_536}, "port: 65536"),
        ({"port": -1}, "port: -1"),
        ({"host": ""}, "host: "),
        ({"batch_max": 0}, "batch_max: 0"),
        ({"batch_max": 1_001, "key_burst": 2_000, "address_burst": 2_000}, "batch_max: 1001"),
        ({"depth_max": 3}, "depth_max: 3"),
        ({"slow_ms": 0}, "slow_ms: 0"),
        ({"address_burst": 99}, "address_burst: 99 is less than batch_max"),
        ({"key_burst": 99}, "key_burst: 99 is less than batch_max"),
        ({"host": "0.0.0.0"}, "host: 0.0.0.0 is reachable from other machines"),
        ({"host": "::"}, "host: :: is reachable from other machines"),
        ({"host": "node.example"}, "host: node.example is reachable from other machines"),
        ({"certificate": Path("c")}, "key: missing"),
        ({"key": Path("k")}, "certificate: missing"),
        ({"client_ca": Path("a")}, "client_ca: set without a certificate"),
    ],
)
def test_what_is_wrong_or_not_safe_is_named(told: dict[str, Any], says: str) -> None:
    found = [fault.message for fault in faults(HttpSettings(**told))]
    assert [each for each in found if each.startswith(says)], found


@pytest.mark.parametrize(
    "told",
    [
        {"host": "::1"},
        {"host": "127.9.9.9"},
        {"host": "localhost"},
        {"host": "0.0.0.0", "allow_plain": True},
        {"host": "0.0.0.0", "certificate": Path("c"), "key": Path("k"), "client_ca": Path("a")},
        {"batch_max": 1_000, "key_burst": 1_000, "address_burst": 1_000},
    ],
)
def test_what_is_safe_is_let_be(told: dict[str, Any]) -> None:
    assert faults(HttpSettings(**told)) == []


def test_all_faults_are_reported_at_once() -> None:
    assert len(faults(HttpSettings(host="0.0.0.0", port=-1, depth_max=0))) == 3
