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
from tests.core.ways import ALICE
from tests.doors import grpc_house, http_house
from tests.doors.results import ID, Shop, shop
from tests.ports import free_port
from tests.stories.node import HOLDFAST

from holdfast.client import SOCKET, Client, NodeRefused
from holdfast.core.claim import Claim
from holdfast.core.proof.acts import Judge, Submit, link_key
from holdfast.core.proof.envelope import Envelope, body_of, packed_nullifier
from holdfast.core.refusal import Refused
from holdfast.core.result.acts import Consume
from holdfast.core.values import Digest, EventNo, TaskId
from holdfast.doors.answers import ANSWERS, RESULTS, problem_of
from holdfast.doors.desk import LOCAL
from holdfast.doors.grpc.result import result_service
from holdfast.doors.http.door import HttpDoor
from holdfast.doors.http.settings import HttpSettings
from holdfast.doors.local import LocalDoor
from holdfast.wire.gen.holdfast.result.v1 import result_pb2, result_pb2_grpc

pytestmark = pytest.mark.rule("RES-007")
Params = dict[str, object]


@pytest.fixture
async def here() -> AsyncIterator[Shop]:
    async with shop() as made:
        yield made


# ------------------------------------------------------------------------------------------------ what is wrong


async def consumed(here: Shop) -> TaskId:
    job = await here.readable()
    await here.do(Consume(job, ALICE, Digest(bytes(32))))
    return job


async def missing(_: Shop) -> TaskId:
    return TaskId(bytes(32))


WRONG: dict[str, tuple[Callable[[Shop], Awaitable[TaskId]], str, Params]] = {
    "NoResultYet": (Shop.resolved, "cap.readResult", {}),
    "Expired": (Shop.cancelled, "cap.readResult", {}),
    "NotFound": (missing, "cap.readResult", {}),
    "ChainMismatch": (Shop.readable, "cap.readResult", {"chain_id": 7}),
    "AlreadyConsumed": (consumed, "cap.consumeResult", {"caller": "alice"}),
    "ResultPruned": (Shop.readable, "cap.getResultBytes", {}),
}
"""How it comes to be, and who is told."""


# ------------------------------------------------------------------------------------------------ ways to ask


@asynccontextmanager
async def listening(here: Shop, folder: Path) -> AsyncIterator[Path]:
    """The socket of the node's folder."""
    door = LocalDoor(here.desk, folder / SOCKET)
    await door.open()
    try:
        yield folder / SOCKET
    finally:
        await door.close()


async def in_python(here: Shop, tmp_path: Path, method: str, params: Params) -> tuple[str, int | str]:
    async with listening(here, tmp_path) as socket, Client(socket) as node:
        with pytest.raises(NodeRefused) as caught:
            await node.call(method, **params)
    return caught.value.name, caught.value.code


async def by_http(here: Shop, _: Path, method: str, params: Params) -> tuple[str, int | str]:
    door = HttpDoor(here.desk, here.world.clock, HttpSettings(port=free_port(), drain_ms=100))
    await door.open()
    try:
        token = await http_house.House(here.world, here.engine, here.desk, door).token()
        async with httpx.AsyncClient(base_url=door.url, headers=http_house.bearer(token)) as client:
            said = (await client.post("/rpc", json=http_house.request(method, **params))).json()
    finally:
        await door.close()
    return said["error"]["data"]["name"], said["error"]["code"]


async def by_grpc(here: Shop, _: Path, method: str, params: Params) -> tuple[str, int | str]:
    async def everybody(*_: object) -> object:
        return LOCAL

    asked: dict[str, Any] = {**params, "task_id": bytes.fromhex(str(params["task_id"]))}
    async with (
        grpc_house.opened(services=[result_service(here.desk)], identify=everybody) as door,
        grpc_house.dialled(door) as channel,
    ):
        stub: Any = result_pb2_grpc.ResultServiceStub(channel)  # type: ignore[no-untyped-call]
        if method == "cap.readResult":
            call = stub.ReadResult(result_pb2.ReadResultRequest(**asked), timeout=30)
        else:
            call = stub.ConsumeResult(result_pb2.ConsumeResultRequest(**asked), timeout=30)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
    no = grpc_house.no_of(caught.value)
    return no.name, no.code


VERBS = {"cap.readResult": "show", "cap.consumeResult": "consume", "cap.getResultBytes": "read"}


async def by_command_line(here: Shop, tmp_path: Path, method: str, params: Params) -> tuple[str, int | str]:
    command = [str(HOLDFAST), "result", VERBS[method], str(params["task_id"]), "--data", str(tmp_path)]
    command += ["--caller", "alice"] if "caller" in params else []
    command += ["--chain-id", str(params["chain_id"])] if "chain_id" in params else []
    async with listening(here, tmp_path):
        child = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=PIPE)
        _, said = await child.communicate()
    assert said.startswith(b"holdfast: "), said
    return said.decode().split(": ")[1], child.returncode or 0


WAYS = {"rpc": by_http, "python": in_python, "grpc": by_grpc, "exit": by_command_line}
CODES = {"rpc": "rpc", "python": "rpc", "grpc": "grpc", "exit": "exit"}
CASES = [(name, way) for name in WRONG for way in WAYS if (name, way) != ("ResultPruned", "grpc")]
"""No bytes pass through gRPC, so nobody misses any there (RPC-002)."""


@pytest.mark.parametrize(("name", "way"), CASES)
async def test_what_is_wrong_with_a_result_has_its_name_and_its_code_everywhere(
    here: Shop, tmp_path: Path, name: str, way: str
) -> None:
    make, method, params = WRONG[name]
    job = await make(here)
    told = await WAYS[way](here, tmp_path, method, {"task_id": job.hex(), **params})
    assert told == (name, getattr(ANSWERS[name], CODES[way]))


def test_the_table_has_every_name_that_the_rule_lists_each_with_a_code_of_its_own() -> None:
    assert len({ANSWERS[name].rpc for name in RESULTS}) == len(RESULTS) == 8
    assert set(WRONG) | {"ProofConflict", "NullifierReuse"} == RESULTS


async def test_pruned_bytes_are_told_with_where_they_are_known(here: Shop, tmp_path: Path) -> None:
    job = await here.readable()
    async with listening(here, tmp_path) as socket, Client(socket) as node:
        with pytest.raises(NodeRefused) as caught:
            await node.call("cap.getResultBytes", task_id=job.hex())
    result = here.engine.state.results[job]
    assert caught.value.about == {"result_digest": result.result_digest.hex(), "height_resolved": "2"}


# ------------------------------------------------------------------------------------------------ proofs


@pytest.mark.rule("RES-001", "RCV-002")
async def test_the_same_proof_again_is_a_repeat_and_another_one_for_the_task_is_in_conflict(here: Shop) -> None:
    job, first = await here.submission()
    await here.do(first)
    await here.do(Judge(first.lease_id, True))
    again = await here.engine.submit(first)
    assert not isinstance(again, Refused)
    assert again.is_repeat
    body = body_of(job, first.lease_id, ID, b"x" * 32, 3, {})
    other = Submit(first.lease_id, ID, Envelope(1, "attested", body, b"s"))
    for projected in (False, True):
        if projected:
            await here.engine.projector.drain()
        no = await here.engine.submit(other)
        assert isinstance(no, Refused)
        assert (no.name, problem_of(no).answer) == ("ProofConflict", ANSWERS["ProofConflict"])
    assert (await here.engine.submit(first)).is_repeat  # type: ignore[union-attr]


@pytest.mark.rule("RES-001", "ENG-005")
@pytest.mark.parametrize(("known", "name"), [("nullifier", "NullifierReuse"), ("task", "ProofConflict")])
async def test_a_nullifier_of_another_task_and_a_task_of_another_nullifier_are_refused_at_the_verdict(
    here: Shop, known: str, name: str
) -> None:
    """It cannot come to be by the node's own hands; what was claimed before is put there by the test."""
    job, first = await here.submission()
    await here.do(first)
    window = here.engine.state.queue.jobs[job].height // here.engine.policy.chain.nullifier_window_blocks
    nullifier = packed_nullifier(1, window, first.envelope.body)
    key = b"n" + nullifier if known == "nullifier" else link_key(job)
    here.engine.state.claims.recalled[key] = Claim(EventNo(1), 0)
    no = await here.engine.submit(Judge(first.lease_id, True))
    assert isinstance(no, Refused)
    assert (no.name, no.rule) == (name, "RES-001")
    assert job not in here.engine.state.results
