"""Who sees what of a job (JOB-010, SEC-002): every method, route, event and call, by every kind of principal.

One private job carries words that appear nowhere else. Whatever a stranger asks for, in whatever way, no answer may
hold one of them: neither a result nor the sentence of a refusal.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
import httpx
import msgspec
import pytest
from tests.api.grpc import grpc_server
from tests.api.http.http_node import WITHIN_S, HttpNode, bearer, http_server, request
from tests.api.result_node import ID, SERVING, ResultNode
from tests.api.rpc.rpc_callers import AUDITOR, BOB, OPERATOR, PROVIDER, RpcNode
from tests.core.commands import some_id
from tests.simulation.world import World

from holdfast.api.grpc.services.result import result_service
from holdfast.api.http.event_fanout import EventFrame
from holdfast.api.node_access import ANONYMOUS, LOCAL, Principal
from holdfast.api.public_events import SUBMITTED_FIELDS, event_filter
from holdfast.api.rpc.methods import METHODS
from holdfast.api.visibility import View, view_of
from holdfast.core import journal_codec
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, Amount, EventNo, TaskId, Tier
from holdfast.core.escrow.messages import Mint
from holdfast.core.key.model import Role
from holdfast.core.lease.messages import FailLease
from holdfast.core.match.messages import Match
from holdfast.core.proof.messages import RecordVerdict
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import CancelJob, RaiseFee
from holdfast.engine.event_stream import StoredEvent
from holdfast.engine.queries.jobs import JobOwner
from holdfast.wire.gen.holdfast.result.v1 import result_pb2, result_pb2_grpc

pytestmark = pytest.mark.rule("JOB-010", "SEC-002")
CALLER: Final = AccountId("tenant-kestrel")
FEE: Final = 77_331
PROMPT, OUTPUT, REASON = "prompt-osprey", b"output-merlin" * 200, "reason-harrier"
OWNER: Final = Principal("f" * 16, Role.REQUESTER, CALLER)
OAK: Final = Principal("9" * 16, Role.PROVIDER, AccountId("oak"))
STRANGERS: Final = {
    "anonymous": ANONYMOUS,
    "another tenant": BOB,
    "a provider": PROVIDER,
}
INSIDERS: Final = {"its caller": OWNER, "an operator": OPERATOR, "an auditor": AUDITOR, "the machine": LOCAL}
WORDS: Final = (CALLER, PROMPT, REASON, str(FEE), "merlin", OUTPUT[:13].hex(), PROMPT.encode().hex())
"""What none but insiders may be told. The provider is one more, where the answer is not about providers."""
ABOUT_PROVIDERS: Final = {
    "node.getOverview",
    "aicf.listProviders",
    "aicf.getProvider",
    "aicf.listJobs",
    "provider.listRules",
}


class KeepingBlobs:
    async def read(self, _: bytes) -> bytes | None:
        return OUTPUT


class SecretJob(ResultNode):
    """A node with one private job that is resolved, and one of the same caller that is leased."""

    resolved_job: TaskId
    leased_job: TaskId

    async def admit(self, **payload: object) -> TaskId:
        self._nonces += 1
        whole = {"kind": "AI", "spec": {"model": "echo", "prompt": PROMPT}} | payload
        command = build_enqueue(self.engine.policy, CALLER, Tier.FREE, whole, FEE, self._nonces)
        assert not isinstance(command, Refused), command
        await self.do(command)
        return list(self.engine.undurable_state.queue.jobs)[-1]

    async def complete(self, **payload: object) -> TaskId:
        job = await self.admit(**payload)
        await self.do(Match())
        submission = self.proof(job, OUTPUT)
        await self.do(submission)
        await self.do(RecordVerdict(submission.lease_id, True, REASON))
        return job

    async def live(self) -> None:
        await self.prepare()
        self.access.blobs = KeepingBlobs()  # type: ignore[assignment]
        await self.do(Mint(some_id(9), CALLER, Amount(1_000_000)))
        self.resolved_job = await self.complete()
        await self.seal()
        self.leased_job = await self.admit()
        await self.do(RaiseFee(self.leased_job, Amount(FEE + 1)))
        await self.do(Match())
        await self.do(self.proof(self.leased_job, OUTPUT))
        await self.engine.wait_tables()


@asynccontextmanager
async def secret_job() -> AsyncIterator[SecretJob]:
    # Without a collector, so that outputs are committed to and shares can be asked for.
    world = World(msgspec.structs.replace(SERVING, result=msgspec.structs.replace(SERVING.result, max_inline_bytes=64)))
    engine = await world.started()
    node = SecretJob(world, engine)
    try:
        await node.live()
        yield node
    finally:
        await engine.stop()


@pytest.fixture
async def node() -> AsyncIterator[SecretJob]:
    async with secret_job() as made:
        yield made


def params_of(method: str, task: TaskId) -> dict[str, object]:
    """Parameters that point at the job, for whatever a method calls them."""
    known: dict[str, object] = {
        "task_id": task.hex(), "provider_id": ID.hex(), "owner": CALLER, "account": CALLER, "id": task.hex(),
        "caller": CALLER, "height": 2, "first": 1, "second": 2, "start": 0, "channel": ID.hex(), "session": "s",
        "event": 1, "even_pending": True,
    }  # fmt: skip
    told = {name: known[name] for name in METHODS[method].params.__struct_fields__ if name in known}
    if method in ("cap.getQuote", "cap.consumeResult", "cap.readResult"):
        told.pop("caller", None)
        told.pop("height", None)
    if method == "aicf.getBalance":
        told.pop("provider_id")
    return told


def words_in(text: str, method: str = "") -> list[str]:
    words = WORDS if method in ABOUT_PROVIDERS else (*WORDS, ID.hex())
    lowered = text.lower()
    return [word for word in words if word.lower() in lowered]


READS: Final = sorted(name for name, method in METHODS.items() if not method.is_write)
MOVES: Final = ["cap.cancel", "cap.raiseFee", "cap.consumeResult"]


@pytest.mark.parametrize("stranger", STRANGERS)
async def test_no_method_tells_a_stranger_anything_of_a_private_job(node: SecretJob, stranger: str) -> None:
    rpc = RpcNode(node.world, node.access)
    told: dict[str, list[str]] = {}
    for method in (*READS, *MOVES, *sorted(METHODS.keys() - {*READS, *MOVES})):
        for task in (node.resolved_job, node.leased_job):
            params = params_of(method, task) | ({"max_fee": 1} if method == "cap.raiseFee" else {})
            for asked in (params, {name: value for name, value in params.items() if name != "caller"}):
                answer = await rpc.raw(STRANGERS[stranger], method, **asked)
                told[method] = told.get(method, []) + words_in(
                    msgspec.json.encode(_without(answer, asked)).decode(), method
                )
    assert {method: words for method, words in told.items() if words} == {}


def _without(answer: Any, params: dict[str, object]) -> Any:
    """What a caller says itself is not told to it: a refusal may repeat a parameter."""
    text = msgspec.json.encode(answer).decode()
    return (
        text.replace(str(params["caller"]), "…")
        if "caller" in params
        else (text.replace(CALLER, "…") if {"owner", "account"} & params.keys() else text)
    )


@pytest.mark.parametrize("stranger", STRANGERS)
async def test_a_stranger_sees_id_kind_state_heights_leaf_and_proof(node: SecretJob, stranger: str) -> None:
    rpc, task, who = RpcNode(node.world, node.access), node.resolved_job.hex(), STRANGERS[stranger]
    shown = await rpc.ask(who, "cap.getJob", task_id=task)
    assert set(shown["job"]) == {"id", "kind", "state", "height", "expires_height", "is_public"}
    assert (shown["job"]["state"], shown["payload"], shown["attempts"]) == ("COMPLETED", None, [])
    assert shown["result"]["height_resolved"] == 2
    assert (await rpc.ask(who, "cap.getJob", task_id=node.leased_job.hex()))["result"] is None
    assert (await rpc.ask(who, "aicf.getJob", task_id=task))["job"]["state"] == "COMPLETED"
    assert (await rpc.ask(who, "cap.getResult", task_id=task))["leaf_index"] == 0
    assert (await rpc.ask(who, "cap.proveResult", task_id=task))["index"] == 0
    assert (await rpc.ask(who, "chain.proveAdmission", task_id=task))["proof"]
    for method in ("cap.listVerdicts", "da.getCommitment"):
        assert (await rpc.refusal(who, method, task_id=task))[:2] == ("Forbidden", "JOB-010"), method
    assert (await rpc.refusal(who, "da.proveShares", task_id=task, start=0))[:2] == ("Forbidden", "JOB-010")
    assert (await rpc.refusal(who, "cap.listJobs", caller=CALLER))[:2] == ("Forbidden", "JOB-010")
    asked = {"task_id": task, "provider_id": ID.hex()}
    assert (await rpc.refusal(who, "provider.explain", **asked))[:2] == ("Forbidden", "JOB-010")
    for method in ("blob.getParts", "blob.getKey"):
        denied = ("Unauthorized", "SEC-001") if who is ANONYMOUS else ("Forbidden", "JOB-010")
        assert (await rpc.refusal(who, method, task_id=task))[:2] == denied, method
    listed = await rpc.ask(who, "aicf.listJobs", provider_id=ID.hex())
    assert listed["jobs"] == []
    waiting = (await node.admit(quorum={"n": 2, "m": 3})).hex()
    shown = await rpc.ask(who, "aicf.getJob", task_id=waiting)
    assert (shown["position"], shown["quorum"], shown["leases"]) == (None, None, [])


@pytest.mark.parametrize("method", ["cap.getResult", "cap.readResult", "cap.proveResult"])
async def test_that_a_private_job_ended_without_a_result_is_public_and_why_is_not(node: SecretJob, method: str) -> None:
    task = await node.admit()
    await node.do(CancelJob(task, reason=REASON))
    rpc, asked = RpcNode(node.world, node.access), {"task_id": task.hex()}
    name, rule, message = (await rpc.refusal(OWNER, method, **asked))[:3]
    assert (name, rule, REASON in message) == ("Cancelled", "RES-007", True)
    for stranger in (BOB, *((ANONYMOUS, PROVIDER) if method != "cap.readResult" else ())):
        name, rule, message = (await rpc.refusal(stranger, method, **asked))[:3]
        assert (name, rule, message.endswith("CANCELLED")) == ("Cancelled", "RES-007", True), message


@pytest.mark.rule("JOB-012")
async def test_why_a_lease_failed_reaches_the_caller_alone_by_call_and_by_event(node: SecretJob) -> None:
    task, says = await node.admit(), f"PROVIDER_FAIL: {REASON}"
    await node.do(Match())
    lease = node.engine.undurable_state.leases.by_job[task]
    await node.do(FailLease(lease.id, lease.provider_id, says))
    rpc = RpcNode(node.world, node.access)
    assert (await rpc.ask(OWNER, "cap.getJob", task_id=task.hex()))["attempts"][-1]["detail"] == says
    told = [each["event"] for each in await _frames(node, OWNER, is_public=False) if each["type"] == "leaseCancelled"]
    assert [each["detail"] for each in told] == [says]
    for stranger in STRANGERS.values():
        assert words_in(str(await rpc.ask(stranger, "cap.getJob", task_id=task.hex()))) == []
        shown = await _frames(node, stranger, is_public=True)
        assert words_in(str([each for each in shown if not each["type"].startswith("provider")])) == []


@pytest.mark.parametrize("insider", INSIDERS)
async def test_its_caller_operators_and_auditors_see_the_whole_job(node: SecretJob, insider: str) -> None:
    rpc, task, who = RpcNode(node.world, node.access), node.resolved_job.hex(), INSIDERS[insider]
    shown = await rpc.ask(who, "cap.getJob", task_id=task)
    assert (shown["job"]["caller"], shown["payload"]["spec"]["prompt"]) == (CALLER, PROMPT)
    assert (shown["result"]["reasons"], shown["attempts"][0]["provider_id"]) == (REASON, ID.hex())
    leased = await rpc.ask(who, "cap.getJob", task_id=node.leased_job.hex())
    assert leased["attempts"][0]["submitted"] is not None
    assert (await rpc.refusal(who, "da.getCommitment", task_id=task))[1] == "DA-001"  # not for want of a right
    assert len((await rpc.ask(who, "cap.listJobs", caller=CALLER))["rows"]) == 2


async def test_the_account_of_a_provider_sees_which_jobs_it_holds_and_not_whose(node: SecretJob) -> None:
    shown = await RpcNode(node.world, node.access).ask(OAK, "aicf.listJobs", provider_id=ID.hex())
    assert [set(job) for job in shown["jobs"]] == [
        {"task_id", "kind", "state", "height", "expires_height", "is_public"}
    ]


async def test_of_a_public_job_everybody_sees_all_but_what_is_submitted_and_not_in_a_block(node: SecretJob) -> None:
    rpc = RpcNode(node.world, node.access)
    task = await node.admit(visibility="public")
    await node.do(Match())
    await node.do(node.proof(task, OUTPUT))
    shown = await rpc.ask(ANONYMOUS, "cap.getJob", task_id=task.hex())
    assert (shown["job"]["caller"], shown["payload"]["spec"]["prompt"]) == (CALLER, PROMPT)
    assert (shown["attempts"][0]["provider_id"], shown["attempts"][0]["submitted"]) == (ID.hex(), None)
    leases = (await rpc.ask(ANONYMOUS, "aicf.getJob", task_id=task.hex()))["leases"]
    assert leases[0]["submitted"] is None


def test_a_view_follows_from_principal_and_record_alone() -> None:
    """The whole table: who, whose, public or not."""
    table = {
        (who, is_public): view_of(principal, JobOwner(CALLER, is_public))
        for who, principal in (STRANGERS | INSIDERS).items()
        for is_public in (False, True)
    }
    assert {view for (who, _), view in table.items() if who in INSIDERS} == {View.WHOLE}
    assert {view for (who, is_public), view in table.items() if who in STRANGERS and is_public} == {View.OPEN}
    assert {view for (who, is_public), view in table.items() if who in STRANGERS and not is_public} == {View.CHAIN}
    nameless = Principal("x", Role.REQUESTER)
    assert view_of(nameless, JobOwner(AccountId(""), False)) is View.CHAIN


# ------------------------------------------------------------------------------------------------ events


async def _frames(node: SecretJob, principal: Principal, *, is_public: bool) -> list[dict[str, Any]]:
    wanted = event_filter(principal, None, is_public=is_public)
    assert not isinstance(wanted, Refused)
    state, shown = node.engine.undurable_state, list[dict[str, Any]]()
    number = 0
    for batch in node.world.disk.batches:
        for event in journal_codec.unpack(batch):
            number += 1
            frame = EventFrame(StoredEvent(EventNo(number), 1, event))
            if (id_ := frame.job_id) is not None:
                job = state.queue.jobs[id_]
                frame.owner = JobOwner(job.caller, bool(job.is_public))
            seen = frame.for_subscriber(wanted)
            if seen is not None:
                shown.append(msgspec.json.decode(seen.json))
    return shown


@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize("is_public", [True, False])
async def test_no_event_tells_a_stranger_anything_of_a_private_job(
    node: SecretJob, stranger: str, is_public: bool
) -> None:
    shown = await _frames(node, STRANGERS[stranger], is_public=is_public)
    about = [each for each in shown if not each["type"].startswith("provider")]
    assert words_in(msgspec.json.encode(about).decode()) == []
    names = {each["type"] for each in shown}
    assert ("jobAdmitted" in names, "jobCompleted" in names, "blockSealed" in names) == (is_public, is_public, True)
    assert not names & {"minted", "completionSubmitted", "leaseAcked", "feeRaised", "healthChanged"}


async def test_the_caller_is_shown_its_events_whole_and_the_payee_all_but_whose_they_are(node: SecretJob) -> None:
    own = await _frames(node, OWNER, is_public=False)
    (done,) = [each["event"] for each in own if each["type"] == "jobCompleted"]
    assert (done["caller"], done["reasons"]) == (CALLER, REASON)
    paid = await _frames(node, OAK, is_public=False)
    (done,) = [each["event"] for each in paid if each["type"] == "jobCompleted"]
    assert words_in(msgspec.json.encode(done).decode(), "aicf.getProvider") == []


async def test_what_was_submitted_for_a_public_job_is_not_told_before_its_block(node: SecretJob) -> None:
    """Replicas could copy it."""
    await node.complete(visibility="public")
    for stranger in STRANGERS.values():
        done = [
            each["event"] for each in await _frames(node, stranger, is_public=True) if each["type"] == "jobCompleted"
        ]
        assert (done[-1]["caller"], SUBMITTED_FIELDS & done[-1].keys()) == (CALLER, set())


# ------------------------------------------------------------------------------------------------ routes and calls


async def first_text(client: httpx.AsyncClient, path: str, headers: dict[str, str]) -> str:
    """What a route answers; of a stream, what it begins with."""
    async with asyncio.timeout(WITHIN_S), client.stream("GET", path, headers=headers) as got:
        if got.headers.get("content-type", "").startswith("text/event-stream"):
            return await anext(got.aiter_text())
        return (await got.aread()).decode(errors="replace")


async def test_no_route_tells_a_stranger_anything_of_a_private_job(node: SecretJob) -> None:
    async with http_server(node.access, node.world, public_events=True) as server:
        there = HttpNode(node.world, node.engine, node.access, server)
        token = await there.token(Role.REQUESTER)
        for headers in ({}, bearer(token)):
            async with there.client() as client:
                for path in server._routes._paths:
                    if path == "/events":
                        continue  # its frames are compared above
                    assert words_in(await first_text(client, path, headers)) == [], path
                asked = request("cap.getJob", task_id=node.resolved_job.hex())
                assert words_in((await client.post("/rpc", json=asked, headers=headers)).text) == []


@pytest.mark.parametrize("stranger", STRANGERS)
async def test_results_over_grpc_are_shown_as_over_json_rpc(node: SecretJob, stranger: str) -> None:
    found = await _grpc_result(node, STRANGERS[stranger], public_reads=True)
    assert (found.task_id, found.height_resolved, found.caller, found.reasons) == (node.resolved_job, 2, "", "")
    assert (await _grpc_result(node, OWNER, public_reads=True)).reasons == REASON


async def test_grpc_asks_for_a_key_where_reads_are_not_public(node: SecretJob) -> None:
    assert await _grpc_result(node, ANONYMOUS, public_reads=False) == "UNAUTHENTICATED"
    assert (await _grpc_result(node, BOB, public_reads=False)).task_id == node.resolved_job


async def _grpc_result(node: SecretJob, principal: Principal, *, public_reads: bool) -> Any:

    async def as_principal(*_: object) -> Principal:
        return principal

    services = [result_service(node.access, public_reads=public_reads)]
    async with (
        grpc_server.grpc_server(services=services, authenticate=as_principal) as door,
        grpc_server.connected_channel(door) as channel,
    ):
        stub: Any = result_pb2_grpc.ResultServiceStub(channel)  # type: ignore[no-untyped-call]
        try:
            return (await stub.GetResult(result_pb2.GetResultRequest(task_id=node.resolved_job))).result
        except grpc.aio.AioRpcError as fault:
            return fault.code().name
