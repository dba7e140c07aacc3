"""The OpenRPC document of the methods, made of their own types (RPC-001).

Its JSON Schemas follow the JSON of the API: records are objects, bytes are lower-case hex, distinct types (Amount,
TaskId …) are what they are made of.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import types
from collections.abc import Mapping
from enum import Enum
from functools import cache
from itertools import pairwise
from textwrap import dedent
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, NewType, Union, get_args, get_origin, get_type_hints

import msgspec

from holdfast.__about__ import __version__
from holdfast.api.error_codes import ERROR_CODES
from holdfast.api.node_access import NodeAccess, RpcCall, RpcMethod
from holdfast.api.rpc.openrpc_examples import example_params
from holdfast.api.rpc.params import NoParams

DISCOVER: Final = "rpc.discover"
DOCUMENT_COST: Final = 10
"""It is long."""
OPENRPC_VERSION: Final = "1.2.6"
HEX: Final = "^([0-9a-f]{2})*$"

Schema = dict[str, Any]
NO_LIMITS: Final[Mapping[str, int]] = MappingProxyType({})

AUTH_ERRORS: Final = ("Unauthorized", "KeyExpired", "KeyRevoked", "Forbidden")
TRANSPORT_ERRORS: Final = ("ParseError", "InvalidRequest", "MethodNotFound", "RateLimited", "TooLarge")
"""Sent before there is a method, so no method lists them."""

LARGE_NUMBERS: Final = frozenset(
    {"nonce", "amount", "available", "held", "pending", "max_fee", "reserved", "charged", "price", "priority", "cost"}
    | {"stake", "stake_min", "unstaking", "slashed", "staked", "minted", "burned", "fee", "total", "units", "chain_id"}
)
"""Fields of 64 bits that may grow beyond what a number of JavaScript holds exactly: read them as large integers."""
_SCALARS: Final[dict[Any, Schema]] = {
    int: {"type": "integer"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    float: {"type": "number"},
    bytes: {"type": "string", "pattern": HEX},
    type(None): {"type": "null"},
    Any: {},
    object: {},
    msgspec.Raw: {},
    dict: {"type": "object"},
    list: {"type": "array"},
}


def with_discovery(methods: Mapping[str, RpcMethod], limits: Mapping[str, int] = NO_LIMITS) -> dict[str, RpcMethod]:
    """The methods, and `rpc.discover`, which describes them all, itself included, and the limits of the server."""

    making: list[asyncio.Task[msgspec.Raw]] = []

    def encoded() -> msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(document(known, limits)))

    async def discover(_: NodeAccess, __: RpcCall, ___: NoParams) -> msgspec.Raw:
        """Made once and in a thread: it takes long, and others must not wait for it (SEC-002)."""
        if not making:
            making.append(asyncio.create_task(asyncio.to_thread(encoded)))
        return await asyncio.shield(making[0])

    known = {**methods, DISCOVER: RpcMethod("This document.", NoParams, dict[str, Any], discover, cost=DOCUMENT_COST)}
    return known


def document(methods: Mapping[str, RpcMethod], limits: Mapping[str, int] = NO_LIMITS) -> Schema:
    """The OpenRPC document of these methods, in the order of their names."""
    schemas = _Schemas()
    described = [_method(name, method, schemas) for name, method in sorted(methods.items())]
    return {
        "openrpc": OPENRPC_VERSION,
        "info": {"title": "Holdfast", "version": __version__, "license": {"name": "Apache-2.0"}},
        "methods": described,
        "components": {"schemas": schemas.known, "errors": {name: _error(name) for name in ERROR_CODES}},
        "x-limits": dict(limits),
    }


def _method(name: str, method: RpcMethod, schemas: _Schemas) -> Schema:
    about, required = _field_docstrings(method.params), _required(method.params)
    params = [
        {"name": field, "required": field in required, "schema": schemas.of(hint) | _size_of(field)}
        | _description(about.get(field))
        for field, hint in _hints(method.params).items()
    ]
    return {
        "name": name,
        "summary": method.summary,
        "description": _docstring(method.params) or method.summary,
        "paramStructure": "by-name",
        "params": params,
        "result": {"name": "result", "schema": schemas.of(method.result)},
        "errors": [{"$ref": f"#/components/errors/{error}"} for error in _errors_of(method)],
        "x-roles": sorted(method.roles),
        "x-write": method.is_write,
        "x-cost": method.cost,
        "x-example": example_params(name, [field for field in _hints(method.params) if field in required]),
    }


def _errors_of(method: RpcMethod) -> list[str]:
    left_out = {*TRANSPORT_ERRORS, *(() if method.roles else AUTH_ERRORS)}
    return [name for name in ERROR_CODES if name not in left_out]


def _error(name: str) -> Schema:
    codes = ERROR_CODES[name]
    return {"code": codes.rpc, "message": name, "data": {"name": name, "http": codes.http, "grpc": codes.grpc}}


# ------------------------------------------------------------------------------------------------ schemas


class _Schemas:
    """Schemas of types; records are collected by name and referred to."""

    def __init__(self) -> None:
        self.known: dict[str, Schema] = {}
        self._names: dict[type, str] = {}

    def of(self, kind: Any) -> Schema:
        if isinstance(kind, NewType):
            return self.of(kind.__supertype__) | {"title": kind.__name__}
        if kind in _SCALARS:
            return dict(_SCALARS[kind])
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"enum": [each.value for each in kind], "title": kind.__name__} | _description(_docstring(kind))
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return {"$ref": f"#/components/schemas/{self._record(kind)}"}
        return self._made_of(get_origin(kind), get_args(kind), kind)

    def _made_of(self, origin: Any, parts: tuple[Any, ...], kind: Any) -> Schema:
        if origin is Annotated:
            return self.of(parts[0]) | _limits(parts[1:])
        if origin is Literal:
            return {"enum": list(parts)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(part) for part in parts]}
        if origin is tuple and not (len(parts) == 2 and parts[1] is Ellipsis):
            count = len(parts)
            return {"type": "array", "items": [self.of(part) for part in parts], "minItems": count, "maxItems": count}
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(parts[1])}
        if isinstance(origin, type) and parts:
            return {"type": "array", "items": self.of(parts[0])}
        raise TypeError(f"no schema for {kind!r}")

    def _record(self, kind: type[msgspec.Struct]) -> str:
        if kind not in self._names:
            name = kind.__name__
            if name in self.known:  # two records of one name, in different modules
                name = f"{kind.__module__.rpartition('.')[2]}.{name}"
            self._names[kind] = name
            self.known[name] = {}  # so that a record that holds its own kind refers to itself
            about = _field_docstrings(kind)
            properties = {
                field: self.of(hint) | _size_of(field) | _description(about.get(field))
                for field, hint in _hints(kind).items()
            }
            shape = {"type": "object", "properties": properties, "required": sorted(_required(kind))}
            self.known[name] = shape | {"title": name} | _description(_docstring(kind))
        return self._names[kind]


def _size_of(field: str) -> Schema:
    return {"x-beyond-2^53": True} if field in LARGE_NUMBERS else {}


def _limits(notes: tuple[Any, ...]) -> Schema:
    words = {
        "ge": "minimum",
        "le": "maximum",
        "min_length": "minLength",
        "max_length": "maxLength",
        "pattern": "pattern",
    }
    metas = [note for note in notes if isinstance(note, msgspec.Meta)]
    pairs = ((words[name], getattr(meta, name)) for meta in metas for name in words)
    return {word: value for word, value in pairs if value is not None}


def _required(kind: type[msgspec.Struct]) -> set[str]:
    return {field.name for field in msgspec.structs.fields(kind) if field.required}


def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Types by field. They are resolved in the module alone, since a field may be named like a type."""
    hints = get_type_hints(kind, localns={}, include_extras=True)
    return {name: hints[name] for name in kind.__struct_fields__}


# ------------------------------------------------------------------------------------------------ descriptions


def _description(about: str | None) -> Schema:
    return {"description": about} if about else {}


def _docstring(kind: type) -> str:
    """A type's own docstring, not an inherited one."""
    return inspect.cleandoc(vars(kind).get("__doc__") or "")


@cache
def _field_docstrings(kind: type) -> dict[str, str]:
    """The docstrings below the fields in the source; none where there is no source."""
    try:
        body = ast.parse(dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError, SyntaxError):
        return {}
    docstrings: dict[str, str] = {}
    lines = body.body if isinstance(body, ast.ClassDef) else []
    for field, below in pairwise(lines):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docstrings[name] = inspect.cleandoc(text)
    return docstrings
