"""The OpenRPC document: every method, its types as JSON has them, and nothing that the node would not keep to."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal, NewType

import msgspec
import pytest
from tests.api.http.http_node import http_node
from tests.core.commands import some_id

from holdfast.api.error_codes import ERROR_CODES
from holdfast.api.http.settings import HttpSettings, limits_of
from holdfast.api.http.websocket import websocket_methods
from holdfast.api.node_access import NodeAccess, RpcCall, RpcMethod
from holdfast.api.rpc import openrpc
from holdfast.api.rpc.methods import METHODS
from holdfast.api.rpc.openrpc import HEX, document, with_discovery
from holdfast.api.rpc.params import read_params
from holdfast.core.base.errors import Refused
from holdfast.core.key.model import Role

pytestmark = pytest.mark.rule("RPC-001")
KNOWN = with_discovery({**METHODS, **websocket_methods(is_public=False)})
DOCUMENT = document(KNOWN)


async def nothing(_: NodeAccess, __: RpcCall, ___: Any) -> None: ...


def method_of(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in found["methods"] if each["name"] == name)


def references(value: object) -> Iterator[str]:
    match value:
        case dict():
            yield from ([str(value["$ref"])] if "$ref" in value else [])
            for each in value.values():
                yield from references(each)
        case list():
            for each in value:
                yield from references(each)


# ------------------------------------------------------------------------------------------------ the node's own


def test_the_document_has_the_shape_that_openrpc_asks_for() -> None:
    assert re.fullmatch(r"1\.\d+\.\d+", DOCUMENT["openrpc"])
    assert DOCUMENT["info"].keys() >= {"title", "version"}
    for method in DOCUMENT["methods"]:
        assert method.keys() >= {"name", "params", "result", "summary", "errors", "paramStructure"}
        assert method["result"].keys() == {"name", "schema"}
        assert isinstance(method["summary"], str)
        assert method["summary"].endswith(".")
        for param in method["params"]:
            assert param.keys() >= {"name", "required", "schema"}
            assert isinstance(param["required"], bool)
    for name in DOCUMENT["components"]["schemas"]:
        assert re.fullmatch(r"[a-zA-Z0-9._-]+", name)
    for error in DOCUMENT["components"]["errors"].values():
        assert isinstance(error["code"], int)
        assert isinstance(error["message"], str)
    assert msgspec.json.decode(msgspec.json.encode(DOCUMENT)) == DOCUMENT


def test_every_method_is_described_once_with_its_parameters_and_roles() -> None:
    assert [method["name"] for method in DOCUMENT["methods"]] == sorted(KNOWN)
    for name, method in KNOWN.items():
        described = method_of(DOCUMENT, name)
        assert [param["name"] for param in described["params"]] == list(method.params.__struct_fields__)
        assert described["x-roles"] == sorted(method.roles)
        assert described["x-write"] is method.is_write


def test_every_reference_leads_somewhere() -> None:
    for reference in set(references(DOCUMENT)):
        _, part, kind, name = reference.split("/")
        assert name in DOCUMENT[part][kind], reference


def test_every_error_has_the_code_that_the_api_gives_it() -> None:
    errors = DOCUMENT["components"]["errors"]
    assert {name: error["code"] for name, error in errors.items()} == {n: each.rpc for n, each in ERROR_CODES.items()}
    mint, status = method_of(DOCUMENT, "account.mint"), method_of(DOCUMENT, "node.getStatus")
    assert {"$ref": "#/components/errors/Forbidden"} in mint["errors"]
    assert {"$ref": "#/components/errors/Forbidden"} not in status["errors"]


def test_a_method_reads_as_it_is_asked() -> None:
    mint = method_of(DOCUMENT, "account.mint")
    assert mint["x-roles"] == ["operator"]
    assert mint["params"] == [
        {"name": "id", "required": True, "schema": {"type": "string", "pattern": HEX}},
        {"name": "owner", "required": True, "schema": {"type": "string", "title": "AccountId"}},
        {"name": "amount", "required": True, "schema": {"type": "integer", "title": "Amount", "x-beyond-2^53": True}},
    ]
    subscribe = method_of(DOCUMENT, "events.subscribe")
    after = subscribe["params"][0]
    assert (after["name"], after["required"]) == ("after", False)
    assert after["schema"] == {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}
    assert after["description"].startswith("The number of the last event you have")


async def test_the_node_gives_the_document_by_method_and_by_path() -> None:
    async with http_node() as house, house.client() as client:
        said = (await house.call("rpc.discover")).json()["result"]
        assert said == (await client.get("/openrpc.json")).json() == document(KNOWN, limits_of(HttpSettings()))


@pytest.mark.rule("SEC-002")
async def test_the_document_is_made_once_and_others_do_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    makers: list[threading.Thread] = []

    def make(*_: object) -> dict[str, Any]:
        makers.append(threading.current_thread())
        return {}

    monkeypatch.setattr(openrpc, "document", make)
    async with http_node() as house, house.client() as client:
        await asyncio.gather(house.call("rpc.discover"), client.get("/openrpc.json"), house.call("rpc.discover"))
    (maker,) = makers
    assert maker is not threading.current_thread()


async def test_what_the_node_answers_is_what_the_document_says() -> None:
    async with http_node() as house:
        token = await house.token()
        asked: dict[str, dict[str, Any]] = {
            "node.getStatus": {},
            "node.getStateDigest": {},
            "account.mint": {"id": some_id(1).hex(), "owner": "alice", "amount": 5},
            "account.reserve": {"id": some_id(2).hex(), "owner": "alice", "amount": 1, "memo": "00ff"},
            "account.getAccount": {"owner": "alice"},
            "account.getReservation": {"id": some_id(2).hex()},
            "account.listAccounts": {},
            "account.listReservations": {},
        }
        for name, params in asked.items():
            result = (await house.call(name, token, **params)).json()["result"]
            assert faults(method_of(DOCUMENT, name)["result"]["schema"], result) == [], name


# ------------------------------------------------------------------------------------------------ types

Length = NewType("Length", int)


class Colour(StrEnum):
    """What it looks like."""

    RED = "red"
    BLUE = "blue"


class Leaf(msgspec.Struct, array_like=True):
    """Packed as an array, told as an object."""

    raw: bytes
    """What it holds.
    On two lines."""
    length: Length = Length(0)


class Tree(msgspec.Struct):
    """Holds its own kind."""

    colour: Colour
    leaves: list[Leaf]
    children: dict[str, Tree]
    pair: tuple[int, str]
    many: tuple[bytes, ...]
    kind: Literal["oak", "ash"]
    size: Annotated[int, msgspec.Meta(ge=1, le=9)]
    bytes: bytes
    either: list[Leaf] | list[int] | None = None
    anything: Any = None


def test_types_become_schemas() -> None:
    found = document({"tree.show": RpcMethod("Shows.", Tree, Tree, nothing, frozenset({Role.AUDITOR}))})
    schemas = found["components"]["schemas"]
    assert schemas["Leaf"] == {
        "type": "object",
        "title": "Leaf",
        "description": "Packed as an array, told as an object.",
        "properties": {
            "raw": {"type": "string", "pattern": HEX, "description": "What it holds.\nOn two lines."},
            "length": {"type": "integer", "title": "Length"},
        },
        "required": ["raw"],
    }
    leaf = {"$ref": "#/components/schemas/Leaf"}
    assert schemas["Tree"]["properties"] == {
        "colour": {"enum": ["red", "blue"], "title": "Colour", "description": "What it looks like."},
        "leaves": {"type": "array", "items": leaf},
        "children": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Tree"}},
        "pair": {"type": "array", "items": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        "many": {"type": "array", "items": {"type": "string", "pattern": HEX}},
        "kind": {"enum": ["oak", "ash"]},
        "size": {"type": "integer", "minimum": 1, "maximum": 9},
        "bytes": {"type": "string", "pattern": HEX},
        "either": {
            "anyOf": [
                {"type": "array", "items": leaf},
                {"type": "array", "items": {"type": "integer"}},
                {"type": "null"},
            ]
        },
        "anything": {},
    }
    assert schemas["Tree"]["required"] == ["bytes", "children", "colour", "kind", "leaves", "many", "pair", "size"]


def test_two_records_of_one_name_do_not_hide_each_other() -> None:
    other = msgspec.defstruct("Leaf", [("green", int)], module="somewhere.garden")
    both = {"a.b": RpcMethod("One.", Tree, Leaf, nothing), "a.c": RpcMethod("Two.", Tree, other, nothing)}
    schemas = document(both)["components"]["schemas"]
    assert schemas["Leaf"]["properties"].keys() == {"raw", "length"}
    assert schemas["garden.Leaf"]["properties"].keys() == {"green"}


def test_a_type_without_a_schema_is_found_when_the_document_is_made() -> None:
    with pytest.raises(TypeError, match="no schema"):
        document({"a.b": RpcMethod("One.", Tree, complex, nothing)})


# ------------------------------------------------------------------------------------------------ checking


def faults(schema: dict[str, Any], value: Any, path: str = "") -> list[str]:
    """What is wrong with a value, by the few words of JSON Schema that the document uses."""
    if "$ref" in schema:
        return faults(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]], value, path)
    if "anyOf" in schema:
        return min((faults(each, value, path) for each in schema["anyOf"]), key=len)
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{path}: {value!r}"]
    kinds = {"integer": int, "string": str, "boolean": bool, "null": type(None), "array": list, "object": dict}
    kind = schema.get("type")
    if kind and (not isinstance(value, kinds[kind]) or (kind == "integer" and isinstance(value, bool))):
        return [f"{path}: {value!r} is no {kind}"]
    if kind == "string" and "pattern" in schema:
        return [] if re.search(schema["pattern"], value) else [f"{path}: {value!r}"]
    if kind == "array":
        return [fault for at, each in enumerate(value) for fault in faults(schema["items"], each, f"{path}[{at}]")]
    if kind == "object" and "properties" in schema:
        known = schema["properties"]
        strange = [f"{path}.{name}: not described" for name in value.keys() - known.keys()]
        missing = [f"{path}.{name}: missing" for name in set(schema["required"]) - value.keys()]
        return (
            strange
            + missing
            + [f for name in value for f in faults(known.get(name, {}), value[name], f"{path}.{name}")]
        )
    return []


def test_the_check_sees_what_does_not_fit() -> None:
    schema = method_of(DOCUMENT, "account.getAccount")["result"]["schema"]
    good = {"owner": "a", "available": 1, "held": 0, "pending": 0}
    assert faults(schema, good) == []
    wrong: list[Any] = [{**good, "held": "0"}, {**good, "x": 1}, {"held": 0}, [], {**good, "held": True}]
    assert [each for each in wrong if not faults(schema, each)] == []


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_the_example_of_every_method_is_accepted_as_it_is(name: str) -> None:
    example = method_of(DOCUMENT, name)["x-example"]
    params = read_params(KNOWN[name].params, example)
    assert not isinstance(params, Refused), params


async def test_examples_can_be_called() -> None:
    async with http_node() as node:
        await node.mint(*range(1, 101))
        token = await node.token()
        for name in ("cap.enqueue", "cap.listJobs", "chain.listBlocks", "account.getAccount", "queue.pause"):
            answer = (await node.call(name, token, **method_of(DOCUMENT, name)["x-example"])).json()
            assert "result" in answer, (name, answer)
