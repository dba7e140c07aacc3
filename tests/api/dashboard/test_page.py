"""The page's files come with a strict policy; without them `/` says in plain HTML what this is and where to go."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.api.http.http_node import http_node

from holdfast.api.dashboard import page
from holdfast.api.http import routes

pytestmark = pytest.mark.rule("SEC-001")


@pytest.fixture(params=["built", "plain"])
def files(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "built":
        (tmp_path / "index.html").write_text("<!doctype html><p>the page</p>")
        (tmp_path / "app.js").write_text("let built = true;")
        (tmp_path / "notes.txt").write_text("not a part of the page")
    monkeypatch.setattr(routes, "load_page", lambda: page.load_page(tmp_path))
    return str(request.param)


async def test_the_root_is_a_page_that_loads_nothing_from_elsewhere(files: str) -> None:
    async with http_node() as node, node.client() as client:
        answer = await client.get("/")
        assert answer.status_code == 200
        assert ("the page" if files == "built" else "This is a Holdfast node") in answer.text
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'self'")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        head = await client.head("/")
        assert (head.status_code, head.content) == (200, b"")


async def test_what_was_built_is_served_and_nothing_else(files: str) -> None:
    async with http_node() as node, node.client() as client:
        script = await client.get("/app.js")
        assert script.status_code == (200 if files == "built" else 404)
        assert (await client.get("/notes.txt")).status_code == 404
        assert (await client.get("/docs")).status_code == script.status_code, "the same page, at the API"
        if files == "built":
            again = await client.get("/app.js", headers={"if-none-match": script.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")


async def test_the_root_still_takes_calls(files: str) -> None:
    async with http_node() as node, node.client() as client:
        call = {"jsonrpc": "2.0", "id": 1, "method": "node.getStatus"}
        assert (await client.post("/", json=call)).json()["result"]["role"] == "owner"
