"""The page of a node on loopback: for whoever has the printed address, with a token that the browser never sees."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx
import pytest
from tests.api.dashboard.test_live import next_overview
from tests.api.http.http_node import HttpNode, http_node, name_of, request
from tests.api.http.test_sse import SseStream
from tests.loopback_ports import free_port

from holdfast.api.dashboard.page import PageFile
from holdfast.cli.dashboard.proxy import DashboardProxy
from holdfast.cli.dashboard.server import DashboardServer
from holdfast.client import NodeRefused, NodeUnreachable
from holdfast.client.node_url import NodeUrl
from holdfast.core.base.errors import Unavailable
from holdfast.core.key.model import Role

pytestmark = pytest.mark.rule("SEC-001")
PAGE = b"<p>the page</p>"
FILES = {"/": PageFile(PAGE, gzip.compress(PAGE), b"text/html", b'"1"')}
PAUSE = request("queue.pause", kind="AI")


@asynccontextmanager
async def dashboard(node: HttpNode, token: str | None) -> AsyncIterator[tuple[DashboardServer, httpx.AsyncClient]]:
    """A dashboard of this node, and a browser that has not opened it yet."""
    async with DashboardServer(NodeUrl(node.url, token=token), FILES, free_port()) as server:
        base = "{0.scheme}://{0.netloc}".format(urlsplit(server.url))
        async with httpx.AsyncClient(base_url=base, timeout=20) as browser:
            yield server, browser


def own(browser: httpx.AsyncClient) -> dict[str, str]:
    return {"origin": str(browser.base_url).rstrip("/")}


async def test_the_printed_address_opens_a_page_that_acts_with_the_token() -> None:
    async with http_node() as node:
        token = await node.token()
        async with dashboard(node, token) as (server, browser):
            assert server.visitor == "operator"
            opened = await browser.get(server.url)
            assert (opened.status_code, 'url=/"' in opened.text) == (200, True)
            assert all(part in opened.headers["set-cookie"] for part in ("HttpOnly", "SameSite=Strict"))
            page = await browser.get("/")
            assert "the page" in page.text
            assert page.headers["content-security-policy"].startswith("default-src 'self'")
            assert (await browser.get("/v1/session")).json()["role"] == "operator"
            assert "result" in (await browser.post("/rpc", json=PAUSE, headers=own(browser))).json()
            assert token not in f"{opened.headers}{page.headers}{page.text}{server.url}"


async def test_nothing_is_answered_without_the_printed_address() -> None:
    async with http_node() as node, dashboard(node, await node.token()) as (_, browser):
        before = node.digest()
        assert name_of(await browser.get("/open", params={"key": "guessed"})) == "Forbidden"
        for path in ("/", "/v1/session", "/v1/live"):
            assert name_of(await browser.get(path)) == "Forbidden"
        assert name_of(await browser.post("/rpc", json=PAUSE, headers=own(browser))) == "Forbidden"
        assert node.digest() == before


async def test_pages_of_other_origins_and_other_names_of_this_machine_are_refused() -> None:
    async with http_node() as node, dashboard(node, await node.token()) as (server, browser):
        await browser.get(server.url)
        before = node.digest()
        elsewhere = {"origin": "https://elsewhere.example"}
        assert name_of(await browser.post("/rpc", json=PAUSE, headers=elsewhere)) == "Forbidden"
        assert name_of(await browser.post("/rpc", json=PAUSE)) == "Forbidden", "a browser names the origin of a POST"
        assert name_of(await browser.get("/v1/live", headers=elsewhere)) == "Forbidden"
        rebound = {"host": "rebound.example", "origin": "http://rebound.example"}
        assert name_of(await browser.post("/rpc", json=PAUSE, headers=rebound)) == "Forbidden"
        assert node.digest() == before


async def test_only_what_the_page_needs_is_passed_on() -> None:
    async with http_node() as node, dashboard(node, None) as (server, browser):
        assert "without a key" in server.visitor
        await browser.get(server.url)
        signed_in = await browser.post("/v1/session", json={"token": "x"}, headers=own(browser))
        assert name_of(signed_in) == "Forbidden"
        assert name_of(await browser.put("/v1/inputs/00", headers=own(browser))) == "NotFound"
        assert name_of(await browser.get("/v1/packages/1")) == "NotFound"


async def test_the_live_overview_passes_through_and_calls_go_on_after_a_stream_has_ended() -> None:
    async with http_node() as node, dashboard(node, await node.token()) as (server, browser):
        await browser.get(server.url)
        for _ in range(2):
            async with browser.stream("GET", "/v1/live") as answer:
                assert (await next_overview(SseStream(answer)))["verdict"] == "Nothing needs a hand."
            called = await browser.post("/rpc", json=request("node.getStatus"), headers=own(browser))
            assert called.json()["result"]["role"] == "owner"


async def test_an_output_keeps_the_headers_that_prevent_it_from_running_as_a_page() -> None:
    guards = {"content-security-policy": "default-src 'none'; sandbox", "content-disposition": "attachment"}

    def answer(asked: httpx.Request) -> httpx.Response:
        assert "cookie" not in asked.headers
        return httpx.Response(200, content=b"<script>", headers={**guards, "set-cookie": "a=b"})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        proxy = DashboardProxy(NodeUrl("http://node.example"), http, FILES, 8460)
        local = httpx.ASGITransport(app=proxy)
        async with httpx.AsyncClient(transport=local, base_url="http://127.0.0.1:8460") as browser:
            await browser.get("/open", params={"key": proxy.key})
            output = await browser.get("/v1/outputs/00")
    assert output.content == b"<script>"
    assert {name: output.headers.get(name) for name in guards} == guards
    assert "set-cookie" not in output.headers


async def test_a_node_that_is_gone_is_named_and_the_page_stays() -> None:
    async with http_node() as node, dashboard(node, None) as (server, browser):
        await browser.get(server.url)
        await node.server.close()
        answer = await browser.post("/rpc", json=request("node.getStatus"), headers=own(browser))
        assert (answer.status_code, name_of(answer)) == (503, "Unavailable")
        assert (await browser.get("/")).status_code == 200


async def test_a_node_that_cannot_be_reached_is_named_before_anything_is_served() -> None:
    with pytest.raises(NodeUnreachable, match="no answer from"):
        async with DashboardServer(NodeUrl(f"http://127.0.0.1:{free_port()}"), FILES, free_port()):
            pass


async def test_a_wrong_token_is_refused_before_anything_is_served() -> None:
    async with http_node() as node:
        url = NodeUrl(node.url, token="hf_0000000000000000_" + "x" * 30)
        with pytest.raises(NodeRefused):
            async with DashboardServer(url, FILES, free_port()):
                pass


async def test_an_installation_without_the_page_says_how_to_build_it() -> None:
    async with http_node() as node:
        with pytest.raises(Unavailable, match="has no page"):
            async with DashboardServer(NodeUrl(node.url), {}, free_port()):
                pass


async def test_a_page_as_a_requester_says_whose_it_is() -> None:
    async with http_node() as node, dashboard(node, await node.token(Role.REQUESTER)) as (server, _):
        assert server.visitor == "requester of alice"
