"""Web pages elsewhere may call with a token of their own where the settings say so, and never with a cookie."""

from __future__ import annotations

import pytest
from tests.api.http.http_node import http_node, name_of, request

from holdfast.api.dashboard.session_endpoint import PATH
from holdfast.api.http.settings import HttpSettings, faults

pytestmark = pytest.mark.rule("SEC-001")
CONSOLE, OTHER = "https://console.example", "https://other.example"
ALLOW = "access-control-allow-origin"
STATUS = request("node.getStatus")


def preflight(origin: str, headers: str = "authorization, content-type") -> dict[str, str]:
    return {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": headers,
    }


async def test_a_page_of_an_allowed_origin_calls_with_its_token() -> None:
    async with http_node(cors_origins=f"{OTHER} {CONSOLE}") as node, node.client(await node.token()) as client:
        asked = await client.options("/rpc", headers=preflight(CONSOLE))
        assert (asked.status_code, asked.headers[ALLOW]) == (204, CONSOLE)
        assert "authorization" in asked.headers["access-control-allow-headers"]
        assert "origin" in asked.headers["vary"]
        called = await client.post("/rpc", json=STATUS, headers={"origin": CONSOLE})
        assert (called.json()["result"]["role"], called.headers[ALLOW]) == ("owner", CONSOLE)
        assert "access-control-allow-credentials" not in {*asked.headers, *called.headers}


async def test_by_default_no_page_elsewhere_can_read_anything() -> None:
    async with http_node() as node, node.client(await node.token()) as client:
        assert (await client.options("/rpc", headers=preflight(CONSOLE))).status_code == 405
        assert ALLOW not in (await client.post("/rpc", json=STATUS, headers={"origin": CONSOLE})).headers


@pytest.mark.parametrize("origin", [OTHER, "https://console.example.evil.example", "http://console.example", "null"])
async def test_other_origins_are_not_allowed(origin: str) -> None:
    async with http_node(cors_origins=CONSOLE) as node, node.client(await node.token()) as client:
        assert (await client.options("/rpc", headers=preflight(origin))).status_code == 405
        assert ALLOW not in (await client.post("/rpc", json=STATUS, headers={"origin": origin})).headers


async def test_a_cookie_is_worth_nothing_in_a_page_elsewhere() -> None:
    async with http_node(cors_origins=CONSOLE) as node, node.client() as client:
        await client.post(PATH, json={"token": await node.token()}, headers={"origin": node.url})
        before = node.digest()
        asked = await client.options("/rpc", headers=preflight(CONSOLE, "content-type"))
        assert (asked.status_code, ALLOW in asked.headers) == (405, False)
        pause = request("queue.pause", kind="AI")
        called = await client.post("/rpc", json=pause, headers={"origin": CONSOLE})
        assert (name_of(called), ALLOW in called.headers) == ("Forbidden", False)
        assert node.digest() == before


@pytest.mark.parametrize("origins", ["*", "console.example", "https://console.example/", "ftp://console.example"])
def test_what_is_not_an_origin_is_refused_at_the_start(origins: str) -> None:
    assert [each.message[:13] for each in faults(HttpSettings(cors_origins=origins))] == ["cors_origins:"]
    assert faults(HttpSettings(cors_origins=f"{CONSOLE} http://127.0.0.1:3000")) == []
