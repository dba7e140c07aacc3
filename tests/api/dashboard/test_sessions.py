"""People sign in with a token and get a cookie that only the page itself can use (SEC-001)."""

from __future__ import annotations

import pytest
from tests.api.http.http_node import HttpNode, bearer, http_node, name_of, request

from holdfast.api.dashboard.session_endpoint import PATH
from holdfast.api.http import page_sessions
from holdfast.api.http.page_sessions import COOKIE, SESSION_MS
from holdfast.core import journal_codec
from holdfast.core.base.privileged import PrivilegedActRecorded
from holdfast.core.key.model import Role

pytestmark = pytest.mark.rule("SEC-001")
ELSEWHERE = {"origin": "https://elsewhere.example"}


def own(node: HttpNode) -> dict[str, str]:
    return {"origin": node.url}


async def test_a_session_does_what_its_key_may_until_it_is_ended() -> None:
    async with http_node() as node, node.client() as client:
        token = await node.token(Role.AUDITOR)
        signed_in = await client.post(PATH, json={"token": token}, headers=own(node))
        assert signed_in.json() | {"until_ms": 0} == {
            "name": token.split("_")[1],
            "role": "auditor",
            "account": None,
            "until_ms": 0,
            "is_cookie": True,
        }
        cookie = signed_in.headers["set-cookie"]
        assert all(part in cookie for part in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"))
        assert token not in cookie
        assert (await client.get(PATH)).json()["role"] == "auditor"
        shown = [(await client.get(PATH, headers=headers)).json()["is_cookie"] for headers in ({}, bearer(token))]
        assert shown == [True, False], "a token of its own cannot be signed out"
        asked = request("archive.getStatus")
        assert "result" in (await client.post("/rpc", json=asked, headers=own(node))).json()
        await client.request("DELETE", PATH, headers=own(node))
        assert (await client.get(PATH)).json()["role"] is None
        assert name_of(await client.post("/rpc", json=asked, headers=own(node))) == "Unauthorized"


async def test_another_site_cannot_use_a_session() -> None:
    async with http_node() as node, node.client() as client:
        await client.post(PATH, json={"token": await node.token()}, headers=own(node))
        before = node.digest()
        pause = request("queue.pause", kind="AI")
        assert name_of(await client.post("/rpc", json=pause, headers=ELSEWHERE)) == "Forbidden"
        assert name_of(await client.post("/rpc", json=pause)) == "Forbidden", "a browser names the origin of a POST"
        assert name_of(await client.get("/v1/live", headers=ELSEWHERE)) == "Forbidden"
        assert node.digest() == before


async def test_signing_in_from_another_site_is_refused() -> None:
    async with http_node() as node, node.client() as client:
        answer = await client.post(PATH, json={"token": await node.token()}, headers=ELSEWHERE)
        assert (name_of(answer), "set-cookie" in answer.headers) == ("Forbidden", False)


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b"\xff", b'{"token": 1}', b'{"token": "x", "more": 1}', b'{"token": "x", "token": "y"}']
)
async def test_a_sign_in_that_cannot_be_read_is_refused(body: bytes) -> None:
    async with http_node() as node, node.client() as client:
        assert (await client.post(PATH, content=body, headers=own(node))).status_code == 400


async def test_a_wrong_token_begins_no_session() -> None:
    async with http_node() as node, node.client() as client:
        answer = await client.post(PATH, json={"token": "hf_0000000000000000_" + "x" * 30}, headers=own(node))
        assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)


async def test_a_revoked_key_ends_its_session() -> None:
    async with http_node() as node, node.client() as client:
        token = await node.token(Role.AUDITOR)
        await client.post(PATH, json={"token": token}, headers=own(node))
        await node.revoke(token)
        assert (await client.get(PATH)).status_code == 401


async def test_a_session_ends_after_twelve_hours() -> None:
    async with http_node() as node, node.client() as client:
        await client.post(PATH, json={"token": await node.token(Role.AUDITOR)}, headers=own(node))
        node.world.clock.wall += SESSION_MS - 1
        assert (await client.get(PATH)).json()["role"] == "auditor"
        node.world.clock.wall += 1
        assert (await client.get(PATH)).json()["role"] is None


async def test_sessions_are_bounded_and_the_oldest_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_sessions, "SESSIONS_MAX", 2)
    async with http_node() as node, node.client() as client:
        token, cookies = await node.token(Role.AUDITOR), []
        for _ in range(3):
            await client.post(PATH, json={"token": token}, headers=own(node))
            cookies.append(client.cookies[COOKIE])
            client.cookies.clear()
        roles = []
        for cookie in cookies:
            seen = await client.get(PATH, headers={"cookie": f"{COOKIE}={cookie}"})
            roles.append(seen.json()["role"])
        assert roles == [None, "auditor", "auditor"]


@pytest.mark.rule("SEC-002")
async def test_what_an_operator_does_in_a_session_is_recorded_with_the_name_of_the_key() -> None:
    async with http_node() as node, node.client() as client:
        token = await node.token()
        await client.post(PATH, json={"token": token}, headers=own(node))
        pause = request("queue.pause", kind="AI", reason="by the page")
        assert "result" in (await client.post("/rpc", json=pause, headers=own(node))).json()
        acts = [event for batch in node.world.disk.batches for event in journal_codec.unpack(batch)]
        recorded = [(each.actor, each.method) for each in acts if isinstance(each, PrivilegedActRecorded)]
        assert recorded == [(token.split("_")[1], "queue.pause")]


@pytest.mark.rule("SEC-002")
async def test_without_a_session_the_page_reads_and_changes_nothing() -> None:
    async with http_node() as node, node.client() as client:
        before = node.digest()
        assert "result" in (await client.post("/rpc", json=request("node.getOverview"), headers=own(node))).json()
        for method, params in (("queue.pause", {"kind": "AI"}), ("key.listKeys", {}), ("blob.retry", {})):
            answer = await client.post("/rpc", json=request(method, **params), headers=own(node))
            assert name_of(answer) == "Unauthorized"
        assert node.digest() == before
