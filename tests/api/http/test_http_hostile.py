"""Hostile requests made from the OpenRPC document: right in all but one thing, or not at all.

Whatever is answered with an error has changed nothing, and no answer says that the node failed inside.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.api.http.http_node import SECRET, HttpNode, http_node
from tests.core.commands import some_id
from tests.counts import counts

from holdfast.api.error_codes import ERROR_CODES
from holdfast.api.http.websocket import websocket_methods
from holdfast.api.rpc.methods import METHODS
from holdfast.api.rpc.openrpc import HEX, document, with_discovery
from holdfast.core.key.model import Role

pytestmark = [pytest.mark.rule("SEC-001"), pytest.mark.rule("RPC-001")]
DOCUMENT = document(with_discovery({**METHODS, **websocket_methods(is_public=False)}))
STATUSES = {200, 204, 400, 401, 403, 413, 429, 503}
MANY = 1_000_000
quietly = settings(
    max_examples=counts(300, 3_000),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


# ------------------------------------------------------------------------------------------------ from the document


def fitting(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values as the schema wants them, ids and names from small sets so that they meet."""
    if "$ref" in schema:
        return fitting(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return st.one_of([fitting(each) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("pattern") == HEX:
        return st.sampled_from([some_id(n).hex() for n in range(4)]) | st.binary(max_size=40).map(bytes.hex)
    match schema.get("type"):
        case "string":
            return st.sampled_from(["alice", "bob", "", "x" * 70]) | st.text(max_size=8)
        case "integer":
            return st.integers(-2, 20) | st.integers(2**63 - 1, 2**64 + 1)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array" if isinstance(schema.get("items"), dict):
            return st.lists(fitting(schema["items"]), max_size=3)
        case "array":
            return st.tuples(*[fitting(each) for each in schema.get("items", [])]).map(list)
        case "object" if "properties" in schema:
            return record(schema["properties"], set(schema.get("required", ())))
        case "object":
            return st.dictionaries(st.text(max_size=4), fitting(schema.get("additionalProperties", {})), max_size=3)
    return anything


def record(properties: dict[str, Any], required: set[str]) -> st.SearchStrategy[dict[str, Any]]:
    must = {name: fitting(schema) for name, schema in properties.items() if name in required}
    may = {name: fitting(schema) for name, schema in properties.items() if name not in required}
    return st.fixed_dictionaries(must, optional=may)


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, 2**64, -(2**64), 10**30, 10**400, "", "0x00", "ff" * 33, "\x00", "\ud800", "'; --"])
    | st.floats()
    | st.text(max_size=10)
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    """A request that fits the document."""
    method = draw(st.sampled_from(DOCUMENT["methods"]))
    properties = {param["name"]: param["schema"] for param in method["params"]}
    required = {param["name"] for param in method["params"] if param["required"]}
    id_ = draw(st.integers() | st.text(max_size=5) | st.none())
    return {"jsonrpc": "2.0", "id": id_, "method": method["name"], "params": draw(record(properties, required))}


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """A request with one thing wrong, as bytes."""
    call = draw(calls())
    names = sorted(call["params"])
    match draw(st.sampled_from(["value", "missing", "strange", "params", "field", "method", "twice", "deep", "bytes"])):
        case "value" if names:
            call["params"][draw(st.sampled_from(names))] = draw(anything)
        case "missing" if names:
            del call["params"][draw(st.sampled_from(names))]
        case "strange":
            call["params"][draw(st.text(max_size=5))] = draw(anything)
        case "params":
            call["params"] = draw(anything)
        case "field":
            call[draw(st.sampled_from(["jsonrpc", "id", "method", "visitor", "x"]))] = draw(anything)
        case "method":
            call["method"] = draw(st.text(max_size=12) | st.sampled_from(["rpc.discover ", "NODE.STATUS", "__init__"]))
        case "twice":
            raw = as_bytes(call)
            return raw[:-1] + b"," + as_bytes({"method": draw(st.sampled_from(sorted(METHODS)))})[1:]
        case "deep":
            call["params"]["x"] = nest(draw(st.integers(1, 200)))
        case _:
            raw = as_bytes(call)
            at = draw(st.integers(0, len(raw)))
            return raw[:at] + draw(st.binary(max_size=4)) + raw[at + draw(st.integers(0, 4)) :]
    return as_bytes(call)


def nest(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def as_bytes(value: object) -> bytes:
    return json.dumps(value).encode()


messages = (
    spoilt()
    | calls().map(as_bytes)
    | st.lists(calls() | anything, max_size=4).map(as_bytes)
    | anything.map(as_bytes)
    | st.binary(max_size=60)
    | st.sampled_from(
        [b"[" * 50_000, b'{"a":' * 50_000, b"9" * 5_000, b"-", b'"' + b"\\u0000" * 100 + b'"', b"\xef\xbb\xbf{}"]
    )
)


# ------------------------------------------------------------------------------------------------ sending


class HostileClient:
    """A door, and every kind of key to it."""

    def __init__(self, house: HttpNode, client: httpx.AsyncClient, shown: dict[str, str | None]) -> None:
        self.house, self.client, self.shown = house, client, shown

    async def send(self, raw: bytes, who: str) -> httpx.Response:
        headers = {"content-type": "application/json"}
        if (shown := self.shown[who]) is not None:
            headers["authorization"] = f"Bearer {shown}"
        return await self.client.post("/rpc", content=raw, headers=headers)


WHO = ("nobody", "operator", "requester", "provider", "auditor", "wrong", "unknown", "expired", "revoked")


@pytest.fixture
async def hostile() -> AsyncIterator[HostileClient]:
    limits: dict[str, Any] = {"key_per_s": MANY, "key_burst": MANY, "address_per_s": MANY, "address_burst": MANY}
    async with http_node(**limits) as house, house.client() as client:
        await house.mint(1)
        revoked, expired = await house.token(), await house.token(expires_ms=house.world.clock.wall + 1)
        shown = {role.value: await house.token(role) for role in Role}
        await house.revoke(revoked)
        house.world.clock.wall += 1
        wrong = {"wrong": shown["operator"][:-1] + "x", "unknown": f"hf_{'cd' * 8}_{SECRET}"}
        yield HostileClient(house, client, {"nobody": None, "expired": expired, "revoked": revoked, **shown, **wrong})


def errors_of(said: httpx.Response) -> list[dict[str, Any]]:
    """The errors in an answer, each one named, with its rule and its code."""
    answer = said.json()
    found = [one["error"] for one in (answer if isinstance(answer, list) else [answer]) if "error" in one]
    for error in found:
        assert error["code"] == ERROR_CODES[error["data"]["name"]].rpc
        assert error["data"]["name"] != "Internal", error
        assert error["data"]["rule"], error
    return found


@quietly
@given(messages, st.sampled_from(WHO))
async def test_what_is_answered_with_an_error_has_changed_nothing(hostile: HostileClient, raw: bytes, who: str) -> None:
    before = hostile.house.digest()
    said = await hostile.send(raw, who)
    assert said.status_code in STATUSES
    if said.status_code == 204:
        return
    errors = errors_of(said)
    is_whole = isinstance(said.json(), dict)
    if errors and (is_whole or len(errors) == len(said.json())):
        assert hostile.house.digest() == before
    if who in ("wrong", "unknown", "expired", "revoked"):
        assert said.status_code == 401


@quietly
@given(calls(), st.sampled_from(WHO))
async def test_nobody_gets_further_than_their_role(hostile: HostileClient, call: dict[str, Any], who: str) -> None:
    before = hostile.house.digest()
    said = await hostile.send(as_bytes(call), who)
    described = next(each for each in DOCUMENT["methods"] if each["name"] == call["method"])
    if described["x-roles"] and who not in described["x-roles"]:
        names = {error["data"]["name"] for error in errors_of(said)}
        assert names
        assert names <= {"Unauthorized", "KeyExpired", "KeyRevoked", "Forbidden", "ParseError"}
        assert hostile.house.digest() == before


@quietly
@given(st.binary(max_size=80))
async def test_no_authorization_header_opens_or_breaks_anything(hostile: HostileClient, shown: bytes) -> None:
    value = bytes(sign for sign in shown if sign >= 0x20 and sign != 0x7F).strip()
    headers = [(b"content-type", b"application/json"), (b"authorization", value)]
    raw = as_bytes({"jsonrpc": "2.0", "id": 1, "method": "node.getStateDigest"})
    said = await hostile.client.post("/rpc", content=raw, headers=headers)
    assert (said.status_code, errors_of(said)[0]["data"]["name"]) == (401, "Unauthorized")
