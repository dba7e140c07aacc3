"""What can be wrong with a result has one name and one code, whichever way somebody asks (RES-007)."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from tests.api.grpc import grpc_server
from tests.api.http import http_node
from tests.api.result_node import ID, ResultNode, result_node
from tests.core.core_driver import ALICE
from tests.loopback_ports import free_port
from tests.stories.node_process import HOLDFAST

from holdfast.api.error_codes import ERROR_CODES, RESULT_ERRORS
from holdfast.api.grpc.services.result import result_service
from holdfast.api.http.server import HttpServer
from holdfast.api.http.settings import HttpSettings
from holdfast.api.node_access import LOCAL
from holdfast.api.rpc.unix_socket import UnixSocketServer
from holdfast.client import HTTP_SOCKET_NAME, SOCKET_NAME, AsyncClient, NodeRefused
from holdfast.client.refusals import REFUSALS, ResultPrunedError
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Digest, EventNo, TaskId
from holdfast.core.index.unique_ids import Claim
from holdfast.core.job.model import JobState
from holdfast.core.proof.envelope import Envelope, body_of, packed_nullifier
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion, link_key
from holdfast.core.result.messages import Consume
from holdfast.engine.outcome import Accepted
from holdfast.wire.gen.holdfast.result.v1 import result_pb2, result_pb2_grpc

pytestmark = pytest.mark.rule("RES-007")
Params = dict[str, object]
OUTPUT = "GET /v1/outputs"
"""What stands for a method where bytes are asked for (RES-009)."""


@pytest.fixture
async def results() -> AsyncIterator[ResultNode]:
    async with result_node() as made:
        yield made


# ------------------------------------------------------------------------------------------------ what is wrong


async def consumed(results: ResultNode) -> TaskId:
    job = await results.readable()
    await results.do(Consume(job, ALICE, Digest(bytes(32))))
    return job


async def missing(_: ResultNode) -> TaskId:
    return TaskId(bytes(32))


WRONG: dict[str, tuple[Callable[[ResultNode], Awaitable[TaskId]], str, Params]] = {
    "NoResultYet": (ResultNode.resolved, "cap.readResult", {}),
    "Expired": (lambda results: results.ended(JobState.EXPIRED), "cap.readResult", {}),
    "Failed": (lambda results: results.ended(JobState.FAILED), "cap.readResult", {}),
    "Cancelled": (ResultNode.cancelled, "cap.readResult", {}),
    "NotFound": (missing, "cap.readResult", {}),
    "ChainMismatch": (ResultNode.readable, "cap.readResult", {"chain_id": 7}),
    "AlreadyConsumed": (consumed, "cap.consumeResult", {"caller": "alice"}),
    "ResultPruned": (ResultNode.readable, OUTPUT, {}),
}
"""How it comes to be, and who is told."""


# ------------------------------------------------------------------------------------------------ ways to ask


@asynccontextmanager
async def listening(results: ResultNode, folder: Path) -> AsyncIterator[Path]:
    """The sockets of the node's folder."""
    door = UnixSocketServer(results.access, folder / SOCKET_NAME)
    settings, path = HttpSettings(drain_ms=100), folder / HTTP_SOCKET_NAME
    bytes_door = HttpServer(results.access, results.world.clock, settings, unix_path=path)
    await door.open()
    await bytes_door.open()
    try:
        yield folder / SOCKET_NAME
    finally:
        await bytes_door.close()
        await door.close()


async def in_python(results: ResultNode, tmp_path: Path, method: str, params: Params) -> tuple[str, int | str]:
    async with listening(results, tmp_path), AsyncClient(tmp_path) as node:
        with pytest.raises(NodeRefused) as caught:
            await (node.result(str(params["task_id"])) if method == OUTPUT else node.call(method, **params))
    assert type(caught.value) is REFUSALS[caught.value.name]
    return caught.value.name, caught.value.code


async def by_http(results: ResultNode, _: Path, method: str, params: Params) -> tuple[str, int | str]:
    door = HttpServer(results.access, results.world.clock, HttpSettings(port=free_port(), drain_ms=100))
    await door.open()
    try:
        token = await http_node.HttpNode(results.world, results.engine, results.access, door).token()
        async with httpx.AsyncClient(base_url=door.url, headers=http_node.bearer(token)) as client:
            if method == OUTPUT:
                said = (await client.get(f"/v1/outputs/{params['task_id']}")).json()
            else:
                said = (await client.post("/rpc", json=http_node.request(method, **params))).json()
    finally:
        await door.close()
    return said["error"]["data"]["name"], said["error"]["code"]


async def by_grpc(results: ResultNode, _: Path, method: str, params: Params) -> tuple[str, int | str]:
    async def everybody(*_: object) -> object:
        return LOCAL

    asked: dict[str, Any] = {**params, "task_id": bytes.fromhex(str(params["task_id"]))}
    async with (
        grpc_server.grpc_server(services=[result_service(results.access)], authenticate=everybody) as door,
        grpc_server.connected_channel(door) as channel,
    ):
        stub: Any = result_pb2_grpc.ResultServiceStub(channel)  # type: ignore[no-untyped-call]
        if method == "cap.readResult":
            call = stub.ReadResult(result_pb2.ReadResultRequest(**asked), timeout=30)
        else:
            call = stub.ConsumeResult(result_pb2.ConsumeResultRequest(**asked), timeout=30)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
    no = grpc_server.call_failure(caught.value)
    return no.name, no.code


VERBS = {"cap.readResult": "show", "cap.consumeResult": "consume", OUTPUT: "read"}


async def by_command_line(results: ResultNode, tmp_path: Path, method: str, params: Params) -> tuple[str, int | str]:
    command = [str(HOLDFAST), "result", VERBS[method], str(params["task_id"]), "--data", str(tmp_path)]
    command += ["--caller", "alice"] if "caller" in params else []
    command += ["--chain-id", str(params["chain_id"])] if "chain_id" in params else []
    async with listening(results, tmp_path):
        child = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=PIPE)
        _, said = await child.communicate()
    assert said.startswith(b"holdfast: "), said
    return said.decode().split(": ")[1], child.returncode or 0


INTERFACES = {"rpc": by_http, "python": in_python, "grpc": by_grpc, "exit": by_command_line}
CODES = {"rpc": "rpc", "python": "rpc", "grpc": "grpc", "exit": "exit"}
CASES = [
    (name, interface) for name in WRONG for interface in INTERFACES if (name, interface) != ("ResultPruned", "grpc")
]
"""No bytes pass through gRPC, so none is missed there (RPC-002)."""


@pytest.mark.parametrize(("name", "interface"), CASES)
async def test_what_is_wrong_with_a_result_has_its_name_and_its_code_everywhere(
    results: ResultNode, tmp_path: Path, name: str, interface: str
) -> None:
    make, method, params = WRONG[name]
    job = await make(results)
    told = await INTERFACES[interface](results, tmp_path, method, {"task_id": job.hex(), **params})
    assert told == (name, getattr(ERROR_CODES[name], CODES[interface]))


def test_the_table_has_every_name_that_the_rule_lists_each_with_a_code_of_its_own() -> None:
    assert len({ERROR_CODES[name].rpc for name in RESULT_ERRORS}) == len(RESULT_ERRORS) == 10
    assert set(WRONG) | {"ProofConflict", "NullifierReuse"} == RESULT_ERRORS


async def test_pruned_bytes_are_refused_with_where_they_are_known(results: ResultNode, tmp_path: Path) -> None:
    job = await results.readable()
    async with listening(results, tmp_path), AsyncClient(tmp_path) as node:
        with pytest.raises(ResultPrunedError) as caught:
            await node.result(job.hex())
    result = results.engine.undurable_state.results[job]
    assert caught.value.details == {"result_digest": result.result_digest.hex(), "height_resolved": "2"}


# ------------------------------------------------------------------------------------------------ proofs


@pytest.mark.rule("RES-001", "RCV-002")
async def test_the_same_proof_again_is_a_repeat_and_another_one_for_the_task_is_slashed_once(
    results: ResultNode,
) -> None:
    job, first = await results.submission()
    await results.do(first)
    await results.do(RecordVerdict(first.lease_id, True))
    again = await results.engine.submit(first)
    assert not isinstance(again, Refused)
    assert again.is_repeat
    body = body_of(job, first.lease_id, ID, b"x" * 32, 3, {})
    other = SubmitCompletion(first.lease_id, ID, Envelope(1, "attested", body, b"s"))
    for projected in (False, True):
        if projected:
            await results.engine.wait_tables()
        ignored = await results.engine.submit(other)
        assert isinstance(ignored, Accepted)
        assert ignored.is_repeat == projected, "it is slashed once"
    assert (await results.engine.submit(first)).is_repeat  # type: ignore[union-attr]


@pytest.mark.rule("RES-001", "ENG-005")
@pytest.mark.parametrize(("known", "name"), [("nullifier", "NullifierReuse"), ("task", "ProofConflict")])
async def test_a_nullifier_of_another_task_and_a_task_of_another_nullifier_are_refused_at_the_verdict(
    results: ResultNode, known: str, name: str
) -> None:
    """It cannot come to be by the node's own hands; what was claimed before is put there by the test."""
    job, first = await results.submission()
    await results.do(first)
    window = (
        results.engine.undurable_state.queue.jobs[job].height // results.engine.policy.chain.nullifier_window_blocks
    )
    nullifier = packed_nullifier(1, window, first.envelope.body)
    key = b"n" + nullifier if known == "nullifier" else link_key(job)
    results.engine.undurable_state.claims.loaded[key] = Claim(EventNo(1), 0)
    no = await results.engine.submit(RecordVerdict(first.lease_id, True))
    assert isinstance(no, Refused)
    assert (no.name, no.rule) == (name, "RES-001")
    assert job not in results.engine.undurable_state.results
