"""Methods of the API, from the OpenRPC document that every node serves at /openrpc.json."""

from __future__ import annotations

from typing import Any, Final

from tools.reference.markdown import code, head, table, wrapped

from holdfast.api.rpc.methods import METHODS
from holdfast.api.rpc.openrpc import document, with_discovery

ABOUT: Final = """\
JSON-RPC 2.0 at `POST /rpc`, on the WebSocket `/ws` and on the local socket. The same as OpenRPC, with JSON
Schemas: `curl http://127.0.0.1:8451/openrpc.json`. Parameters are given by name; bytes are lower-case hex.
What can be refused is in [errors](errors.md)."""


def page() -> str:
    told = document(with_discovery(METHODS))
    schemas = told["components"]["schemas"]
    index = ((f"[{each['name']}](#{_anchor(each['name'])})", each["summary"]) for each in told["methods"])
    parts = [head("Methods", ABOUT), table(("method", "what it does"), index)]
    parts += [_section(each) for each in told["methods"]]
    parts.append("## Records\n\nWhat methods take and answer, where it has a name.\n")
    parts += [_record(name, schema) for name, schema in sorted(schemas.items()) if "properties" in schema]
    return "\n".join(parts)


def _section(method: dict[str, Any]) -> str:
    roles = method.get("x-roles") or []
    who = f"For keys of the role {' or '.join(roles)}." if roles else "Without a key, where reads are public."
    text = f"## {method['name']}\n\n{method['summary']} {who}\n\n"
    rows = [
        (code(each["name"]), _kind(each["schema"]), _need(bool(each.get("required"))), _about(each))
        for each in method["params"]
    ]
    if rows:
        text += table(("parameter", "type", "given", "meaning"), rows) + "\n"
    return f"{text}Answer: {_kind(method['result']['schema'])}.\n"


def _record(name: str, schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = [
        (code(field), _kind(kind), _need(field in required), _about(kind))
        for field, kind in schema["properties"].items()
    ]
    about = f"{wrapped(' '.join(schema['description'].split()))}\n\n" if schema.get("description") else ""
    return f"### {name}\n\n{about}" + table(("field", "type", "given", "meaning"), rows)


def _about(described: dict[str, Any]) -> str:
    return " ".join(str(described.get("description") or described.get("schema", {}).get("description") or "").split())


def _need(is_required: bool) -> str:
    return "always" if is_required else "optional"


def _anchor(name: str) -> str:
    return name.lower().replace(".", "")


def _kind(schema: dict[str, Any]) -> str:
    """A JSON Schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return ", ".join(code(str(each)) for each in schema["enum"])
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_kind(each) for each in schema[several]))
    kind = schema.get("type", "any")
    if kind == "array" and "items" in schema and isinstance(schema["items"], dict):
        return f"list of {_kind(schema['items'])}"
    return "hex" if "pattern" in schema and kind == "string" and "0-9a-f" in schema["pattern"] else str(kind)
