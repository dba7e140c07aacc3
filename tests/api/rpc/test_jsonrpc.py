"""JSON-RPC over the local socket: every no has a name, a rule and a code, and bad input changes nothing."""

from __future__ import annotations

import ast
import asyncio
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.api.rpc.rpc_callers import answer
from tests.core.blocks import SEAL
from tests.core.commands import some_id
from tests.simulation.world import World

import holdfast
from holdfast.api.error_codes import ERROR_CODES, error_reply
from holdfast.api.node_access import LOCAL, NodeAccess, RpcCall, RpcMethod
from holdfast.api.rpc.limits import BATCH_MAX, DEPTH_MAX
from holdfast.api.rpc.methods import METHODS
from holdfast.api.rpc.params import NoParams
from holdfast.api.rpc.unix_socket import LINE_BYTES_MAX, UnixSocketServer
from holdfast.client import NodeRefused, NodeUnreachable
from holdfast.client.node_socket import NodeSocket
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.core.state_digest import digest
from holdfast.engine.loop import Engine

pytestmark = pytest.mark.rule("RPC-001")
A, B = some_id(1).hex(), some_id(2).hex()


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    started = await World().started()
    yield started
    await started.stop()


@pytest.fixture
async def folder(engine: Engine, tmp_path: Path) -> AsyncIterator[Path]:
    door = UnixSocketServer(NodeAccess(engine, engine.submit), tmp_path / "node.sock")
    await door.open()
    yield tmp_path
    await door.close()


async def ask(engine: Engine, message: object) -> Any:
    raw = message if isinstance(message, bytes) else json.dumps(message).encode()
    said = await answer(NodeAccess(engine, engine.submit), raw)
    return None if said is None else json.loads(said)


def call(method: str, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def error_of(said: Any) -> tuple[str, int, str]:
    error = said["error"]
    return error["data"]["name"], error["code"], error["message"]


async def test_a_command_is_answered_with_its_event(engine: Engine) -> None:
    assert await ask(engine, call("account.mint", id=A, owner="alice", amount=5)) == {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {"event": 3, "is_repeat": False},
    }


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize(
    ("message", "name", "says"),
    [
        (b"{", "ParseError", "not JSON"),
        (b"\xff\xfe", "ParseError", "not JSON"),
        (b"[" * DEPTH_MAX, "ParseError", "not JSON"),
        (b"[" * (DEPTH_MAX + 1), "InvalidRequest", f"nested deeper than {DEPTH_MAX}"),
        (b"[" * 100_000, "InvalidRequest", f"nested deeper than {DEPTH_MAX}"),
        (b"7", "InvalidRequest", "an object"),
        (b"[]", "InvalidRequest", "a batch of 0"),
        (b"{}", "InvalidRequest", "jsonrpc"),
        (b'{"jsonrpc":"2.0","id":1}', "InvalidRequest", "method"),
        (b'{"jsonrpc":"2.0","id":[],"method":"node.getStatus"}', "InvalidRequest", "id"),
        (b'{"jsonrpc":"2.0","id":true,"method":"node.getStatus"}', "InvalidRequest", "id"),
        (b'{"jsonrpc":"2.0","id":1,"method":"node.explode"}', "MethodNotFound", "node.explode"),
        (b'{"jsonrpc":"2.0","id":1,"method":"account.mint","params":[1]}', "InvalidParams", "named fields"),
        (call("account.mint", owner="alice", amount=5), "InvalidParams", "id: missing"),
        (call("account.mint", id=A, owner="alice", amount=5, x=1), "InvalidParams", "x: no such field"),
        (call("account.mint", id=A, owner="alice", amount="5"), "InvalidParams", "amount: Expected `int`"),
        (call("account.mint", id=A, owner="alice", amount=5.5), "InvalidParams", "amount: Expected `int`"),
        (call("account.mint", id=A, owner=7, amount=5), "InvalidParams", "owner: Expected `str`"),
        (call("account.mint", id="0x" + A, owner="alice", amount=5), "InvalidParams", "id: must be lower-case hex"),
        (call("account.mint", id=A.upper() + "AA", owner="alice", amount=5), "InvalidParams", "id: must be"),
        (call("account.mint", id=A[:-2], owner="alice", amount=5), "InvalidParams", "31 bytes"),
        (call("account.mint", id=A, owner="alice", amount=0), "InvalidParams", "amount"),
        (call("account.mint", id=A, owner="alice", amount=2**63), "InvalidParams", "amount: must fit into 64 bits"),
        (call("account.listReservations", after=-(2**63) - 1), "InvalidParams", "after: must fit into 64 bits"),
        (call("cap.getResult", task_id=A, chain_id=2**64), "InvalidParams", "chain_id: must fit into 64 bits"),
        (call("cap.getResult", task_id=A, chain_id=2**64 - 1), "ChainMismatch", f"{2**64 - 1}"),
        (call("account.listAccounts", after="\0"), "InvalidParams", "after: must not hold a NUL"),
        (call("account.getAccount", owner="nobody"), "NotFound", "nobody"),
        (call("account.getReservation", id=B), "NotFound", B),
        (call("account.listReservations", limit=0), "InvalidParams", "limit"),
        (call("account.listReservations", limit=1_001), "InvalidParams", "limit"),
        (call("account.reserve", id=A, owner="alice", amount=1), "InsufficientFunds", "0 available"),
    ],
)
async def test_bad_input_is_named_and_changes_nothing(engine: Engine, message: object, name: str, says: str) -> None:
    before = digest(engine.undurable_state)
    said = error_of(await ask(engine, message))
    assert said[:2] == (name, ERROR_CODES[name].rpc)
    assert says in said[2]
    assert digest(engine.undurable_state) == before


@pytest.mark.rule("SEC-001")
async def test_a_refusal_is_short_however_many_unknown_fields_there_are(engine: Engine) -> None:
    asked = call("account.getAccount", **{f"{number:x}" * 200: number for number in range(3_000)})
    name, _, says = error_of(await ask(engine, asked))
    assert name == "InvalidParams"
    assert "owner: missing" in says
    assert len(says) < 2_000


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
hostile = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@pytest.mark.rule("SEC-001")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(METHODS)), st.dictionaries(st.sampled_from(["id", "owner", "amount", "height"]), hostile))
async def test_hostile_parameters_never_break_the_node(engine: Engine, method: str, params: dict[str, object]) -> None:
    said = await ask(engine, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    assert "result" in said or said["error"]["data"]["name"] != "Internal"


async def test_a_batch_is_answered_in_order_and_notifications_are_not(engine: Engine) -> None:
    mint = call("account.mint", id=A, owner="alice", amount=5)
    silent = {key: value for key, value in call("account.mint", id=B, owner="alice", amount=7).items() if key != "id"}
    said = await ask(engine, [mint, silent, call("nothing"), 5])
    assert ["result" in one for one in said] == [True, False, False]
    assert await ask(engine, silent) is None
    assert await ask(engine, [silent]) is None
    assert (await ask(engine, call("account.getAccount", owner="alice")))["result"]["available"] == 12
    assert error_of(await ask(engine, [mint] * (BATCH_MAX + 1)))[0] == "TooLarge"


async def test_a_failure_inside_gives_nothing_away(engine: Engine) -> None:
    async def broken(_: NodeAccess, __: RpcCall, ___: object) -> Any:
        raise ValueError("the password is swordfish")

    methods = {"broken": RpcMethod("Broken.", NoParams, None, broken)}
    raw = await answer(NodeAccess(engine, engine.submit), json.dumps(call("broken")).encode(), LOCAL, methods)
    assert raw is not None
    assert error_of(json.loads(raw))[0] == "Internal"
    assert b"swordfish" not in raw


def names_in(source: str) -> set[str]:
    """Names that refusals get in this text: the fourth argument of Refused, or its `name`."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    refusals = [call for call in calls if getattr(call.func, "id", "") == "Refused"]
    told = [arg for call in refusals for arg in (*call.args[3:4], *(k.value for k in call.keywords if k.arg == "name"))]
    return {arg.value for arg in told if isinstance(arg, ast.Constant) and isinstance(arg.value, str)}


def test_every_name_that_is_written_down_anywhere_has_an_answer() -> None:
    source = Path(holdfast.__file__).parent
    used = set().union(*(names_in(path.read_text("utf-8")) for path in source.rglob("*.py")))
    assert {"NotFound", "Forbidden", "SpoolFull"} <= used
    assert used - ERROR_CODES.keys() == set()


def test_every_name_a_refusal_uses_has_an_answer() -> None:
    assert error_reply(Refused("X-001", "no")).codes.rpc == -32000
    assert error_reply(Unavailable("X-001", "later")).codes.http == 503
    assert error_reply(Corrupt("X-001", "broken")).codes.exit == 74
    codes = [each.rpc for each in ERROR_CODES.values()]
    assert len(set(codes)) == len(codes)


# ------------------------------------------------------------------------------------------------ the socket


async def test_a_client_does_what_it_says_over_the_socket(folder: Path, engine: Engine) -> None:
    async with NodeSocket(folder) as node:
        await node.mint(some_id(1), "alice", 100)
        await node.reserve(some_id(2), "alice", 60, b"\x00memo")
        await node.charge(some_id(2), "bob", 45)
        assert await node.account("alice") == {"owner": "alice", "available": 40, "held": 0, "pending": 15}
        for _ in range(engine.policy.chain.finality_depth + 1):
            await engine.submit(SEAL)
        assert (await node.account("bob"))["available"] == 45
        assert (await node.reservation(some_id(2)))["status"] == "PAID"
        with pytest.raises(NodeRefused, match="ESC-001") as refusal:
            await node.refund(some_id(9))
        assert refusal.value.name == "NotFound"


@pytest.mark.rule("SEC-001")
async def test_the_socket_is_its_users_alone(folder: Path) -> None:
    assert stat.S_IMODE((folder / "node.sock").stat().st_mode) == 0o600


async def test_requests_of_one_connection_share_a_batch(folder: Path, engine: Engine) -> None:
    reader, writer = await asyncio.open_unix_connection(folder / "node.sock")
    before = engine.durable_head.number
    for number in range(50):
        request = call("account.mint", id=some_id(number).hex(), owner="alice", amount=1) | {"id": number}
        writer.write(json.dumps(request).encode() + b"\n")
    said = [json.loads(await reader.readline()) for _ in range(50)]
    assert sorted(one["id"] for one in said) == list(range(50))
    assert engine.durable_head.number - before < 25
    writer.close()


@pytest.mark.rule("ENG-006")
async def test_events_stream_from_a_cursor(folder: Path) -> None:
    async with NodeSocket(folder) as node:
        for number in range(1, 6):
            await node.mint(some_id(number), "alice", number)
        seen = []
        async for event in node.follow(after=3):
            seen.append((event["number"], event["type"]))
            if len(seen) == 8:
                break
        assert seen == [(n, ("privilegedActRecorded", "minted")[n % 2]) for n in range(4, 12)]
        with pytest.raises(NodeRefused, match="ENG-006"):
            await anext(node.follow(after=99))
        with pytest.raises(NodeRefused, match="RPC-001"):
            await anext(node.follow(after="x"))


@pytest.mark.rule("SEC-001")
async def test_a_line_without_end_is_refused_and_the_server_stays_open(folder: Path) -> None:
    reader, writer = await asyncio.open_unix_connection(folder / "node.sock")
    writer.write(b"x" * (LINE_BYTES_MAX + 10))
    assert error_of(json.loads(await reader.readline()))[0] == "TooLarge"
    writer.close()
    async with NodeSocket(folder) as node:
        assert (await node.status())["phase"] == "running"


async def test_half_a_line_has_no_meaning(folder: Path, engine: Engine) -> None:
    _, writer = await asyncio.open_unix_connection(folder / "node.sock")
    before = digest(engine.undurable_state)
    writer.write(json.dumps(call("account.mint", id=A, owner="alice", amount=5)).encode())  # no newline
    writer.close()
    await writer.wait_closed()
    async with NodeSocket(folder) as node:
        await node.status()
    assert digest(engine.undurable_state) == before


async def test_closing_the_server_finishes_pending_requests(engine: Engine, tmp_path: Path) -> None:
    door = UnixSocketServer(NodeAccess(engine, engine.submit), tmp_path / "node.sock")
    await door.open()
    reader, writer = await asyncio.open_unix_connection(tmp_path / "node.sock")
    writer.write(json.dumps(call("account.mint", id=A, owner="alice", amount=5)).encode() + b"\n")
    while not engine.undurable_state.ledger.accounts:
        await asyncio.sleep(0)
    await door.close()
    assert json.loads(await reader.readline())["result"]["event"] == 3
    assert await reader.readline() == b""
    assert not (tmp_path / "node.sock").exists()
    writer.close()


async def test_a_folder_too_deep_for_a_socket_is_named(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="shorter path"):
        await UnixSocketServer(NodeAccess(engine, engine.submit), tmp_path / ("d" * 120) / "node.sock").open()


async def test_a_client_gives_up_when_its_patience_ends(tmp_path: Path) -> None:
    async with NodeSocket(tmp_path, total_timeout_s=0.0) as node:
        with pytest.raises(NodeUnreachable, match=r"node\.sock"):
            await node.status()


async def test_the_answer_of_a_cancelled_call_is_not_taken_for_the_next_ones(folder: Path, engine: Engine) -> None:
    async with NodeSocket(folder) as node:
        await node.mint(some_id(1), "alice", 100)
        call = asyncio.create_task(node.reserve(some_id(2), "alice", 60))
        while not engine.undurable_state.ledger.reservations:
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert (await node.account("alice"))["available"] == 40


async def test_a_silent_node_is_given_up_on(tmp_path: Path) -> None:
    left = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        left.set()

    server = await asyncio.start_unix_server(silent, tmp_path / "node.sock")
    async with NodeSocket(tmp_path, total_timeout_s=0.05, answer_timeout_s=0.05) as node:
        with pytest.raises(NodeUnreachable):
            await node.status()
    await left.wait()
    server.close()
    await server.wait_closed()


@pytest.mark.rule("ENG-006")
async def test_following_goes_on_over_a_restart_of_the_node(tmp_path: Path) -> None:
    world = World()
    seen: list[int] = []

    async def follow() -> None:
        async for event in NodeSocket(tmp_path).follow():
            seen.append(event["number"])

    follower = asyncio.create_task(follow())
    for life in range(3):
        engine = await world.started()
        door = UnixSocketServer(NodeAccess(engine, engine.submit), tmp_path / "node.sock")
        await door.open()
        async with NodeSocket(tmp_path) as node:
            await node.mint(some_id(life), "alice", 1)
        while len(seen) < 3 * (life + 1):
            await asyncio.sleep(0.001)
        await door.close()
        await engine.stop()
    follower.cancel()
    await asyncio.gather(follower, return_exceptions=True)
    assert seen == list(range(1, 10))
