"""Reads what a node sends: answers of JSON-RPC, errors of a route, server-sent events."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from holdfast.client.answers import JobLogEntry, NodeEvent
from holdfast.client.errors import NodeRefused, NodeUnreachable
from holdfast.client.refusals import make_refusal, refusal_from

T = TypeVar("T")
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError)


def rpc_request(method: str, params: dict[str, object], id_: int = 1) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def read_answer(raw: bytes, status: int) -> Any:
    """The result of one call; raises its refusal."""
    answer = read_answers(raw, status)
    if isinstance(answer, list):
        raise _not_a_node(raw, status)
    if isinstance(answer, NodeRefused):
        raise answer
    return answer


def read_answers(raw: bytes, status: int) -> Any:
    """Of a batch, the results and refusals by their order; of anything else, its result or its refusal."""
    try:
        message = msgspec.json.decode(raw)
        if isinstance(message, list):
            return [_result(each) for each in sorted(message, key=lambda each: each["id"])]
        return _result(message)
    except _MALFORMED as fault:
        raise _not_a_node(raw, status) from fault


def _result(message: dict[str, Any]) -> Any:
    return refusal_from(message["error"]) if "error" in message else message["result"]


def read_refusal(raw: bytes, status: int) -> NodeRefused:
    """The refusal of a route that answers with something else than JSON-RPC."""
    try:
        return refusal_from(msgspec.json.decode(raw)["error"])
    except _MALFORMED as fault:
        raise _not_a_node(raw, status) from fault


class ProxyAnswer(NodeUnreachable):
    """Something between us and the node answers that it cannot reach it: worth another try."""


def _not_a_node(raw: bytes, status: int) -> NodeUnreachable:
    if status in (502, 503, 504):
        return ProxyAnswer(f"a proxy answers {status}")
    return NodeUnreachable(f"this is not a node: it answers {status} {raw[:60]!r}")


def typed(kind: type[T], answer: Any) -> T:
    """The answer as its type; what this library does not know of it is left out."""
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as fault:
        raise NodeUnreachable(f"the node's answer is not a {kind.__name__}: {fault}") from fault


# ------------------------------------------------------------------------------------------------ events


class EventParser:
    """Server-sent events out of chunks that begin and end anywhere."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, chunk: bytes) -> list[tuple[str, str, bytes]]:
        """Id, name and data of the events that are complete now; a comment has no name."""
        *frames, self._buffer = (self._buffer + chunk).split(b"\n\n")
        return [_fields(frame) for frame in frames]


def _fields(frame: bytes) -> tuple[str, str, bytes]:
    fields = {"id": b"", "event": b"", "data": b""}
    for line in frame.split(b"\n"):
        name, _, value = line.partition(b":")
        if (key := name.decode("latin-1")) in fields:
            fields[key] = value.removeprefix(b" ")
    return fields["id"].decode("latin-1"), fields["event"].decode("latin-1"), fields["data"]


def read_event(data: bytes) -> NodeEvent:
    return typed(NodeEvent, msgspec.json.decode(data))


def read_log_entry(data: bytes) -> JobLogEntry:
    return typed(JobLogEntry, msgspec.json.decode(data))


def read_end(data: bytes) -> NodeRefused:
    """Why a stream ended, as the node says it."""
    return make_refusal(msgspec.json.decode(data))
