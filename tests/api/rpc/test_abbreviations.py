"""Ids by their beginning: found by an index, ambiguous ones are refused with the candidates."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.api.http.http_node import HttpNode, http_server, name_of
from tests.api.result_node import ID, ResultNode, result_node

from holdfast.api.rpc import lookup_methods

pytestmark = pytest.mark.rule("JOB-001", "RPC-001")


@pytest.fixture
async def results() -> AsyncIterator[ResultNode]:
    async with result_node() as made:
        yield made


@pytest.fixture
async def node(results: ResultNode) -> AsyncIterator[HttpNode]:
    async with http_server(results.access, results.world) as server:
        yield HttpNode(results.world, results.engine, results.access, server)


async def find(node: HttpNode, text: str, method: str = "cap.findJob") -> Any:
    return (await node.call(method, text=text)).json()


async def test_the_beginning_of_an_id_finds_the_job_while_it_lives_and_afterwards(
    results: ResultNode, node: HttpNode
) -> None:
    ids = [(await results.pending()).hex() for _ in range(20)] + [(await results.readable()).hex()]
    for id_ in ids:
        others = [each for each in ids if each != id_]
        digits = next(n for n in range(4, 65) if not any(each.startswith(id_[:n]) for each in others))
        for shown in (id_[:digits], id_[: digits + 1], id_):
            assert (await find(node, shown))["result"] == {"task_id": id_}
        other = id_[:39] + ("0" if id_[39] != "0" else "1")  # beyond what the index has of an id
        assert (await find(node, other))["error"]["data"]["name"] == "NotFound"


async def test_what_begins_several_is_refused_with_their_ids(
    results: ResultNode, node: HttpNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_methods, "DIGITS_MIN", 2)
    ids = [(await results.pending()).hex() for _ in range(40)]
    first = next(id_[:2] for id_ in ids if sum(each.startswith(id_[:2]) for each in ids) > 1)
    told = (await find(node, first))["error"]
    assert told["data"]["name"] == "Ambiguous"
    assert all(id_ in told["data"]["hint"] for id_ in ids if id_.startswith(first))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        *((text, "InvalidParams") for text in ("abc", "", "xyzw", "00" * 33, "AAAA")),
        *((text, "NotFound") for text in ("0000", "00" * 32)),
    ],
)
async def test_what_begins_none_is_refused_by_name(node: HttpNode, text: str, name: str) -> None:
    assert name_of(await node.call("cap.findJob", text=text)) == name


async def test_a_provider_is_found_by_its_name_or_the_beginning_of_its_id(node: HttpNode) -> None:
    for text in ("oak", ID.hex()[:4], ID.hex()):
        assert (await find(node, text, "aicf.findProvider"))["result"] == {"provider_id": ID.hex()}
    assert name_of(await node.call("aicf.findProvider", text="elm")) == "NotFound"
