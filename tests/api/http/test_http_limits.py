"""Limits of the HTTP server: nesting, rates, and the settings."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.api.http.http_node import http_node, name_of, request
from tests.simulation.world import SimulatedClock

from holdfast.api.grpc.settings import GrpcSettings
from holdfast.api.http.gateway import BYTES_PER_TOKEN
from holdfast.api.http.settings import LEAVES, HttpSettings, faults, limits_of
from holdfast.api.limits.evidence_budget import BRIEF_BYTES, SHARED_BY
from holdfast.api.limits.rate_limit import BUCKETS_MAX, TokenBuckets
from holdfast.api.rpc import jsonrpc
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Network
from holdfast.core.policy import Policy

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
    heavy = ("uvicorn", "prometheus_client", "holdfast.core.state_machine", "holdfast.api.node_access")
    asked = f"import sys, holdfast.config; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


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


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (b"[" + b"[]," * 400_000 + b"1]", "TooLarge"),
        (b'{"a":' * 400_000, "TooLarge"),
        (b"{" + b",".join(b'"%d":1' % n for n in range(100_000)) + b"}", "TooLarge"),
        (b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 1_000_000 + b'","params":{}}', "MethodNotFound"),
        (b'{"jsonrpc":"2.0","id":1,"method":"cap.getJob","params":{"' + b"y" * 1_000_000 + b'":1}}', "InvalidParams"),
    ],
    ids=["wide", "deep", "keys", "long method", "long field"],
)
async def test_a_message_that_takes_long_to_read_is_refused_before_it_is_decoded(raw: bytes, name: str) -> None:
    """Decoding 4 MB of empty lists took 1.2 s, in which nobody else was served."""
    async with http_node() as node:
        got = await node.post(raw, await node.token())
        assert name_of(got) == name
        assert len(got.content) < 2_000


async def test_a_long_message_costs_as_many_requests_as_it_is_long() -> None:
    raw = json.dumps(request("node.getStatus")).encode() + b" " * (1 << 20)
    async with http_node(key_per_s=1, key_burst=100) as node:
        token = await node.token()
        answers = [await node.post(raw, token) for _ in range(7)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 2


async def test_a_long_message_that_is_refused_costs_the_same() -> None:
    raw = b"[" + b"[]," * (1 << 19) + b"1]"
    async with http_node(key_per_s=1, key_burst=100) as node:
        token = await node.token()
        answers = [await node.post(raw, token) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [413] * 4 + [429]


# ------------------------------------------------------------------------------------------------ what is told


@pytest.mark.rule("SEC-002")
@pytest.mark.parametrize(
    ("method", "params", "cost"),
    [
        ("node.getStatus", {}, 1),
        ("cap.listJobs", {}, 1),
        ("cap.listJobs", {"limit": 100}, 1),
        ("cap.listJobs", {"limit": 101}, 2),
        ("cap.listJobs", {"limit": 1_000}, 91),
        ("cap.listJobs", {"limit": 10**30}, 91),
        ("cap.listJobs", {"limit": -5}, 1),
        ("chain.getBlock", {"height": 1}, 4),
        ("chain.proveConsistency", {"first": 1, "second": 1}, 4),
        ("chain.proveAdmission", {"task_id": "00" * 32}, 4),
        ("cap.proveResult", {"task_id": "00" * 32}, 4),
        ("rpc.discover", {}, 10),
        ("cap.unknown", {}, 1),
    ],
)
async def test_what_takes_long_to_answer_counts_as_several_requests(
    method: str, params: dict[str, object], cost: int
) -> None:
    asked = request(method, **params)
    for burst in (2 * cost - 1, 2 * cost):
        limits: dict[str, Any] = {"batch_max": 2, "address_per_s": 1, "address_burst": max(2, burst)}
        async with http_node(**limits) as node, node.client() as client:
            first = await client.post("/rpc", json=[asked, asked])
            if burst < 2 * cost and cost > 1:
                assert (first.status_code, name_of(first)) == (413, "TooLarge"), "it could never be answered"
                continue
            assert first.status_code == 200
            if burst == 2 * cost:
                assert name_of(await client.post("/rpc", json=request("node.getStatus"))) == "RateLimited"


async def test_the_limits_that_are_told_are_those_that_hold() -> None:
    """`rpc.discover` and the document name them, at each a message is read, one beyond it is refused by that number."""
    limits: dict[str, Any] = {
        "body_bytes_max": 5_000,
        "anonymous_bytes_max": 3_000,
        "depth_max": 7,
        "batch_max": 3,
        "values_max": 90,
    }
    async with http_node(**limits) as node:
        token = await node.token()
        told = (await node.call("rpc.discover")).json()["result"]["x-limits"]
        async with node.client() as client:
            assert (await client.get("/openrpc.json")).json()["x-limits"] == told
        assert {name: told[name] for name in limits} == limits
        assert told == limits_of(HttpSettings(**limits))
        beyond: dict[str, Callable[[int], str]] = {
            "batch_max": lambda n: json.dumps([request("node.getStatus")] * n),
            "depth_max": lambda n: "[" * n + "]" * n,
            "values_max": lambda n: "[" + ",".join("1" * (n - 1)) + "]",
        }
        for name, make in beyond.items():
            assert f"at most {told[name]}" not in (within := await node.post(make(told[name]).encode(), token)).text
            assert f"than {told[name]}" not in within.text, name
            refused = await node.post(make(told[name] + 1).encode(), token)
            assert name_of(refused) in ("TooLarge", "InvalidRequest")
            assert re.search(rf"(at most|than) {told[name]}\b", refused.text), name
        for limit, sender in (("body_bytes_max", token), ("anonymous_bytes_max", None)):
            assert name_of(await node.post(b" " * told[limit], sender)) == "ParseError"
            refused = await node.post(b" " * (told[limit] + 1), sender)
            assert (name_of(refused), f"more than {told[limit]} bytes" in refused.text) == ("TooLarge", True)


def test_the_documented_limits_are_the_defaults() -> None:
    http, grpc = HttpSettings(), GrpcSettings()
    evidence = Policy.for_network(Network.PRODUCTION).evidence
    told = [
        f"{grouped(http.key_per_s)} requests a second with one key after a burst of {grouped(http.key_burst)} (`http",
        f"{grouped(http.address_per_s)} after {grouped(http.address_burst)} from an address without one (`http",
        f"{grouped(grpc.address_per_s)} calls a second from one address after {grouped(grpc.address_burst)} (`grpc",
        f"{grouped(grpc.acts_per_s)} a second after {grouped(grpc.acts_burst)} (`grpc.acts_per_s`",
        f"{BYTES_PER_TOKEN >> 10} KiB, and may hold {grouped(http.values_max)} values and keys (`http.values_max`)",
        f"has {http.address_connections_max} (`http.address_connections_max`)",
        f"at most {grouped(http.key_connections_max)} (`http.key_connections_max`)",
        f"{grouped(grpc.address_calls_max)} open calls of one address (`grpc.address_calls_max`)",
        f"{grpc.address_unproven_max} streams that have not answered their challenge (`grpc.address_unproven_max`",
        f"{grpc.evidence_kib_per_s >> 10} MiB a second of a provider with a stake (`grpc.evidence_kib_per_s`",
        f"{grpc.unstaked_kib_per_s} KiB of one without (`grpc.unstaked_kib_per_s`",
        f"{SHARED_BY} times that for all without a stake together",
        f"digest, size and first {BRIEF_BYTES} bytes are kept",
        f"`policy.evidence.dead_letters_per_channel_max` ({grouped(evidence.dead_letters_per_channel_max)})",
    ]
    page = " ".join((Path(__file__).parents[3] / "docs/how-to/operator.md").read_text().split())
    assert [each for each in told if each not in page] == []


def grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")
