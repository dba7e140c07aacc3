"""JSON-RPC over HTTP: the same answers as everywhere, refusals under their status, and bad input changes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
from structlog.testing import capture_logs
from tests.api.http.http_node import SECRET, WITHIN_S, HttpNode, http_node, name_of, request, response_on, until
from tests.core.commands import some_id
from tests.simulation.journal import Fault

from holdfast.api.error_codes import ERROR_CODES
from holdfast.api.http import rpc_endpoint
from holdfast.api.node_access import RpcMethod
from holdfast.api.rpc.methods import METHODS
from holdfast.api.rpc.params import NoParams
from holdfast.core.key.model import Role

pytestmark = pytest.mark.rule("RPC-001")
A, B = some_id(1).hex(), some_id(2).hex()
MINT = {"id": A, "owner": "alice", "amount": 5}


@pytest.fixture
async def node() -> AsyncIterator[HttpNode]:
    async with http_node() as node:
        yield node


def nested(depth: int) -> bytes:
    """A message that is nested so deep."""
    deep = "[" * (depth - 2) + "]" * (depth - 2)
    return b'{"jsonrpc":"2.0","id":1,"method":"node.getStatus","params":{"x":' + deep.encode() + b"}}"


# ------------------------------------------------------------------------------------------------ answers


@pytest.mark.parametrize("path", ["/rpc", "/"])
async def test_one_request_gets_one_answer(node: HttpNode, path: str) -> None:
    async with node.client(await node.token()) as client:
        said = await client.post(path, json=request("account.mint", **MINT))
        assert (said.status_code, said.headers["content-type"]) == (200, "application/json")
        assert said.json()["result"]["is_repeat"] is False
        assert (await client.post(path, json=request("account.mint", **MINT))).json()["result"]["is_repeat"] is True
        assert (await client.post(path, json=request("account.getAccount", owner="alice"))).json()["result"][
            "available"
        ] == 5


async def test_a_batch_is_answered_in_order_and_notifications_are_not(node: HttpNode) -> None:
    async with node.client(await node.token()) as client:
        silent = {"jsonrpc": "2.0", "method": "account.mint", "params": {"id": B, "owner": "alice", "amount": 7}}
        batch = [request("account.mint", **MINT), silent, request("nothing") | {"id": "x"}, 5]
        said = await client.post("/rpc", json=batch)
        assert said.status_code == 200
        assert [one.get("id") for one in said.json()] == [1, "x", None]
        assert ["result" in one for one in said.json()] == [True, False, False]
        quiet = await client.post("/rpc", json=silent)
        assert (quiet.status_code, quiet.content) == (204, b"")
        assert (await client.post("/rpc", json=request("account.getAccount", owner="alice"))).json()["result"][
            "available"
        ] == 12


async def test_a_refusal_by_the_rules_is_an_answer_like_any_other(node: HttpNode) -> None:
    said = await node.call("account.getAccount", await node.token(), owner="nobody")
    assert (said.status_code, name_of(said)) == (200, "NotFound")
    said = await node.call("account.reserve", await node.token(), **MINT)
    assert (said.status_code, name_of(said)) == (200, "InsufficientFunds")
    said = await node.call("account.mint", await node.token(), id=A, owner="alice")
    assert (said.status_code, name_of(said)) == (200, "InvalidParams")


async def test_requests_at_the_same_time_share_a_batch_of_the_journal(node: HttpNode) -> None:
    async with node.client(await node.token()) as client:
        before = node.engine.durable_head.number
        node.world.disk.faults = [Fault.HANG]
        asked = [request("account.mint", id=some_id(n).hex(), owner="alice", amount=1) for n in range(40)]
        asking = asyncio.gather(*(client.post("/rpc", json=one) for one in asked))
        await until(lambda: node.server.metrics.running == 40)
        node.world.disk.release.set()
        assert all("result" in one.json() for one in await asking)
        assert node.engine.durable_head.number - before <= 2, "the first ones, and all that came meanwhile"


async def test_what_was_accepted_is_finished_though_the_client_has_left(node: HttpNode) -> None:
    token = await node.token()
    node.world.disk.faults = [Fault.HANG]
    async with node.raw_connection() as (_, writer):
        raw = json.dumps(request("account.mint", **MINT)).encode()
        head = f"POST /rpc HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"
        writer.write(head.encode() + b"content-length: %d\r\n\r\n" % len(raw) + raw)
        await until(lambda: node.engine.undurable_state.ledger.accounts)
    await until(lambda: node.server.metrics.connections() == 0)
    node.world.disk.release.set()
    assert (await node.call("account.getAccount", token, owner="alice")).json()["result"]["available"] == 5


async def test_closing_the_server_finishes_pending_requests_and_admits_nobody() -> None:
    async with http_node() as node:
        token = await node.token()
        node.world.disk.faults = [Fault.HANG]
        async with node.client(token) as client, node.client(token) as idle:
            assert (await idle.get("/healthz")).status_code == 200
            asking = asyncio.create_task(client.post("/rpc", json=request("account.mint", **MINT)))
            await until(lambda: node.engine.undurable_state.ledger.accounts)
            closing = asyncio.create_task(node.server.close())
            await until(lambda: node.server._server is None)
            with pytest.raises(httpx.TransportError):
                await node.call("node.getStatus")
            assert not closing.done()
            node.world.disk.release.set()
            assert (await asking).json()["result"]["event"]
            await closing


async def test_a_server_that_closes_does_not_wait_for_ever() -> None:
    async with http_node(drain_ms=100) as node:
        token = await node.token()
        node.world.disk.faults = [Fault.HANG]
        asking = asyncio.create_task(node.call("account.mint", token, **MINT))
        await until(lambda: node.engine.undurable_state.ledger.accounts)
        async with asyncio.timeout(WITHIN_S):
            await node.server.close()
        (answered,) = await asyncio.gather(asking, return_exceptions=True)
        assert isinstance(answered, httpx.TransportError) or answered.status_code == 500  # type: ignore[union-attr]
        node.world.disk.release.set()
        await until(lambda: node.engine.durable_head.last == 4)


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize(
    ("raw", "status", "name"),
    [
        (b"{", 400, "ParseError"),
        (b"\xff\xfe", 400, "ParseError"),
        (b"", 400, "ParseError"),
        (b'{"jsonrpc":"2.0","id":1,"method":"node.getStatus","params":{"x":"\\ud800"}}', 400, "ParseError"),
        (b"7", 400, "InvalidRequest"),
        (b"[]", 400, "InvalidRequest"),
        (b"{}", 400, "InvalidRequest"),
        (nested(64), 200, "InvalidParams"),
        (nested(65), 400, "InvalidRequest"),
        (b"[" * 60_000, 413, "TooLarge"),
        (json.dumps([request("node.explode")] * 101).encode(), 413, "TooLarge"),
        (b'{"jsonrpc":"2.0","id":1,"method":"node.explode"}', 200, "MethodNotFound"),
        (json.dumps(request("account.mint", **MINT)).encode(), 401, "Unauthorized"),
        (json.dumps(request("node.getStateDigest")).encode(), 401, "Unauthorized"),
        (json.dumps(request("events.subscribe", after=0)).encode(), 401, "Unauthorized"),
        (json.dumps(request("auth.setToken", token="x")).encode(), 200, "Refused"),
        (b" " * 70_000, 413, "TooLarge"),
    ],
)
async def test_bad_input_of_nobody_is_named_and_changes_nothing(
    node: HttpNode, raw: bytes, status: int, name: str
) -> None:
    before = node.digest()
    said = await node.post(raw)
    assert (said.status_code, name_of(said)) == (status, name)
    assert said.json()["error"]["code"] == ERROR_CODES[name].rpc
    assert ("www-authenticate" in said.headers) == (status == 401)
    assert node.digest() == before


@pytest.mark.rule("SEC-001")
async def test_a_batch_within_the_limit_is_answered(node: HttpNode) -> None:
    said = await node.post(json.dumps([request("node.getStatus")] * 100).encode())
    assert len([one for one in said.json() if "result" in one]) == 100


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("shown", ["wrong", "unknown", "nonsense", "basic", "expired", "revoked"])
async def test_a_key_that_is_not_good_opens_nothing(node: HttpNode, shown: str) -> None:
    token = await node.token(expires_ms=node.world.clock.wall + 1_000)
    if shown == "revoked":
        await node.revoke(token)
    if shown == "expired":
        node.world.clock.wall += 1_000
    headers = {
        "wrong": f"Bearer {token[:-1]}x",
        "unknown": f"Bearer hf_{'ab' * 8}_{SECRET}",
        "nonsense": "Bearer hf_'; DROP TABLE key",
        "basic": "Basic YTpi",
    }
    before = node.digest()
    raw = json.dumps(request("node.getStatus")).encode()
    said = await node.post(raw, authorization=headers.get(shown, f"Bearer {token}"))
    names = {"expired": "KeyExpired", "revoked": "KeyRevoked"}
    assert (said.status_code, name_of(said)) == (401, names.get(shown, "Unauthorized"))
    assert said.headers["www-authenticate"] == "Bearer"
    assert node.digest() == before


@pytest.mark.rule("SEC-001")
async def test_a_key_is_good_until_it_expires_and_for_its_role_and_scopes(node: HttpNode) -> None:
    now_ms = node.world.clock.wall
    token = await node.token(expires_ms=now_ms + 1_000)
    node.world.clock.wall += 999
    assert (await node.call("account.mint", token, **MINT)).status_code == 200
    for other in (await node.token(Role.REQUESTER), await node.token(scopes=("account.getAccount",))):
        said = await node.call("account.mint", other, id=B, owner="alice", amount=5)
        assert (said.status_code, name_of(said)) == (403, "Forbidden")
        assert (await node.call("account.getAccount", other, owner="alice")).json()["result"]["available"] == 5


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "name"),
    [
        ("GET", "/rpc", {}, 405, "InvalidRequest"),
        ("PUT", "/rpc", {}, 405, "InvalidRequest"),
        ("OPTIONS", "/rpc", {"origin": "https://evil.example"}, 405, "InvalidRequest"),
        ("POST", "/events", {}, 405, "InvalidRequest"),
        ("POST", "/healthz", {}, 405, "InvalidRequest"),
        ("POST", "/rpc", {"content-type": "text/plain"}, 415, "InvalidRequest"),
        ("POST", "/rpc", {"content-type": "application/x-www-form-urlencoded"}, 415, "InvalidRequest"),
        ("POST", "/rpc", {}, 415, "InvalidRequest"),
        ("POST", "/rpc", {"content-type": "application/json", "content-encoding": "gzip"}, 415, "InvalidRequest"),
        ("POST", "/rpc/", {"content-type": "application/json"}, 404, "NotFound"),
        ("GET", "/favicon.ico", {}, 404, "NotFound"),
        ("GET", "/%2e%2e/etc/passwd", {}, 404, "NotFound"),
        ("GET", "/ws", {}, 426, "InvalidRequest"),
    ],
)
async def test_what_is_asked_the_wrong_way_is_named(
    node: HttpNode, method: str, path: str, headers: dict[str, str], status: int, name: str
) -> None:
    async with node.client() as client:
        said = await client.request(method, path, content=b"{}" if method == "POST" else None, headers=headers)
        assert (said.status_code, name_of(said)) == (status, name)
        assert ("allow" in said.headers) == (status == 405)
        assert (await client.get("/healthz")).status_code == 200, "the connection is as good as before"


@pytest.mark.rule("SEC-001")
async def test_no_answer_invites_other_sites_or_is_kept_or_guessed_at(node: HttpNode) -> None:
    async with node.client() as client:
        for path in ("/healthz", "/nowhere", "/metrics"):
            said = await client.get(path, headers={"origin": "https://evil.example"})
            assert said.headers["x-content-type-options"] == "nosniff"
            assert said.headers["cache-control"] == "no-store"
            assert not [name for name in said.headers if name.startswith("access-control")]
            assert "server" not in said.headers
        kind = {"content-type": "application/json; charset=utf-8"}
        assert (await client.post("/rpc", json=request("node.getStatus"), headers=kind)).status_code == 200


@pytest.mark.rule("SEC-001")
async def test_reads_can_be_for_keys_only() -> None:
    async with http_node(public_reads=False, methods=METHODS | {"chain.look": METHODS["node.getStatus"]}) as node:
        assert (await node.call("node.getStatus")).status_code == 200
        assert "result" in (await node.call("rpc.discover")).json()
        said = await node.call("chain.look")
        assert (said.status_code, name_of(said)) == (401, "Unauthorized")
        assert "result" in (await node.call("chain.look", await node.token(Role.AUDITOR))).json()
    async with http_node(methods=METHODS | {"chain.look": METHODS["node.getStatus"]}) as node:
        assert "result" in (await node.call("chain.look")).json()


# ------------------------------------------------------------------------------------------------ how much, how often


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("with_key", [False, True])
@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_body_has_a_limit_and_a_key_a_higher_one(with_key: bool, is_chunked: bool) -> None:
    async with http_node(anonymous_bytes_max=2_000, body_bytes_max=8_000) as node, node.client() as client:
        headers = {"content-type": "application/json"}
        if with_key:
            headers |= {"authorization": f"Bearer {await node.token()}"}
        limit = 8_000 if with_key else 2_000
        for size, status in ((limit - 1, 200), (limit, 200), (limit + 1, 413), (20 * limit, 413)):
            raw = json.dumps(request("node.getStatus")).encode().ljust(size)

            async def pieces(raw: bytes = raw) -> AsyncIterator[bytes]:
                for at in range(0, len(raw), 700):
                    yield raw[at : at + 700]

            said = await client.post("/rpc", content=pieces() if is_chunked else raw, headers=headers)
            assert said.status_code == status
            assert status == 200 or name_of(said) == "TooLarge"


@pytest.mark.rule("SEC-001")
async def test_a_body_that_announces_too_much_is_refused_before_it_is_sent(node: HttpNode) -> None:
    async with node.raw_connection() as (reader, writer):
        head = b"POST /rpc HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n"
        writer.write(head + b"content-length: 9999999999999\r\n\r\n")
        status, headers, said = await response_on(reader)
        assert (status, headers["connection"], said["error"]["data"]["name"]) == (413, "close", "TooLarge")


@pytest.mark.rule("SEC-001")
async def test_a_body_without_end_is_not_read_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_endpoint, "LINGER_BYTES", 4_000)
    async with http_node(anonymous_bytes_max=2_000) as node, node.raw_connection() as (reader, writer):
        writer.write(b"POST /rpc HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n")
        writer.write(b"transfer-encoding: chunked\r\n\r\n" + b"3e8\r\n" + b"x" * 1_000 + b"\r\n")
        writer.write(b"3e8\r\n" + b"x" * 1_000 + b"\r\n1\r\nx\r\n")
        status, _, said = await response_on(reader)
        assert (status, said["error"]["data"]["name"]) == (413, "TooLarge")
        for _ in range(5):
            writer.write(b"3e8\r\n" + b"x" * 1_000 + b"\r\n")
        assert await asyncio.wait_for(reader.read(), 5) == b"", "after some more of it the connection ends"


@pytest.mark.rule("SEC-001")
async def test_whoever_asks_too_often_gets_a_retry_time() -> None:
    limits: dict[str, Any] = {
        "address_per_s": 10,
        "address_burst": 20,
        "key_per_s": 10,
        "key_burst": 20,
        "batch_max": 10,
    }
    async with http_node(**limits) as node, node.client() as client:
        ask: dict[str, Any] = {"json": request("node.getStatus")}
        mine, other = await node.token(), await node.token()
        for token in (None, mine):
            headers = {"authorization": f"Bearer {token}"} if token else {}
            batch: dict[str, Any] = {"json": [request("node.getStatus")] * 10, "headers": headers}
            assert [(await client.post("/rpc", **batch)).status_code for _ in range(2)] == [200, 200]
            before = node.digest()
            said = await client.post("/rpc", **ask, headers=headers)
            assert (said.status_code, name_of(said), said.headers["retry-after"]) == (429, "RateLimited", "1")
            assert node.digest() == before
        assert (await client.post("/rpc", **ask, headers={"authorization": f"Bearer {other}"})).status_code == 200
        wrong = {"authorization": f"Bearer {mine[:-1]}x"}
        assert (await client.post("/rpc", **ask, headers=wrong)).status_code == 429, "guessing counts as nobody"
        node.world.clock.monotonic += 100
        assert [(await client.post("/rpc", **ask)).status_code for _ in range(2)] == [200, 429]
        assert (await client.get("/healthz")).status_code == 200, "whoever watches is not counted"


# ------------------------------------------------------------------------------------------------ inside


async def test_a_node_that_cannot_decide_says_so_as_http_does(node: HttpNode) -> None:
    token = await node.token()
    await node.engine.stop()
    for method, params in (("node.getStatus", {}), ("account.mint", MINT)):
        said = await node.call(method, token, **params)
        assert (said.status_code, name_of(said)) == (503, "Unavailable")


@pytest.mark.rule("SEC-001")
async def test_a_failure_inside_gives_nothing_away() -> None:
    async def broken(*_: object) -> Any:
        raise ValueError("the password is swordfish")

    methods = METHODS | {"broken.one": RpcMethod("Breaks.", NoParams, NoParams, broken)}
    async with http_node(methods=methods) as node:
        with capture_logs() as logs:
            said = await node.call("broken.one")
        assert (said.status_code, said.json()["error"]["data"]["name"]) == (200, "Internal")
        assert "swordfish" not in said.text
        assert [each["event"] for each in logs] == ["request_failed"]


@pytest.mark.rule("SEC-001")
async def test_no_token_gets_into_an_answer_or_a_log(
    node: HttpNode, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    token = await node.token(Role.REQUESTER)
    with capture_logs() as logs:
        said = [
            await node.call("account.mint", token, **MINT),
            await node.call("node.getStatus", token[:-1] + "x"),
            await node.call("auth.setToken", token=token),
            await node.call(token, token),
            await node.post(b"{", token),
        ]
        await node.revoke(token)
        said.append(await node.call("node.getStatus", token))
    texts = [one.text for one in said if one is not said[3]]
    assert [text for text in [*texts, str(logs), caplog.text, *capsys.readouterr()] if SECRET in text] == []
    assert msgspec.json.decode(said[3].content)["error"]["data"]["name"] == "MethodNotFound"
