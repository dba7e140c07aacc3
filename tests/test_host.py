"""Host calls: bound to chain, height, transaction and caller; the same call gives the same everywhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.api.result_node import ResultNode, result_node
from tests.core.commands import some_id

from holdfast.api.receipts import Receipt
from holdfast.core.base.canonical import canonical, decode
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, ChainId, Digest, Height, Kind, TaskId
from holdfast.core.job.ids import request_hash, task_id
from holdfast.core.job.spec import QuorumSpec
from holdfast.core.result import result_digest
from holdfast.core.state_digest import digest
from holdfast.host import Call, ConsumptionReceipt, Host, HostResult, Options

pytestmark = pytest.mark.rule("JOB-004")
SPEC = {"model": "echo", "prompt": "hi"}
CIRCUIT = {"circuit": "qubit[2] q; bit[2] c; t q[0]; c = measure q;", "shots": 10, "width": 2, "depth": 3}


@pytest.fixture
async def here() -> AsyncIterator[ResultNode]:
    async with result_node() as made:
        yield made


def call(height: int, tx: int = 1, caller: str = "alice", chain_id: int = 1337) -> Call:
    return Call(chain_id=chain_id, height=Height(height), tx_hash=Digest(some_id(tx)), caller=AccountId(caller))


async def unchanged(here: ResultNode, no: Any, name: str, before: bytes) -> None:
    assert isinstance(no, Refused)
    assert no.name == name
    assert digest(here.engine.undurable_state) == before


@pytest.mark.rule("JOB-001", "JOB-006")
async def test_a_receipt_can_be_computed_again_from_where_the_call_ran(here: ResultNode) -> None:
    host = Host(here.access)
    receipt = await host.ai_enqueue(call(2), SPEC, 100)
    assert isinstance(receipt, Receipt)
    payload = {"kind": "AI", "spec": SPEC}
    assert receipt.task_id == task_id(ChainId(1337), Height(2), some_id(1), b"alice", payload)
    assert (receipt.height, receipt.earliest_read_height, receipt.reserved) == (2, 3, 100)
    assert (receipt.tx_hash, receipt.request_hash) == (call(2).tx_hash, request_hash(canonical(payload)))
    circuit = await host.quantum_enqueue(call(2), CIRCUIT, 50, Options(units=3))
    assert isinstance(circuit, Receipt)
    assert circuit.kind is Kind.QUANTUM
    assert here.engine.undurable_state.queue.jobs[circuit.task_id].units == 3


@pytest.mark.rule("JOB-002")
async def test_the_same_call_again_gets_the_same_receipt_also_at_a_later_height(here: ResultNode) -> None:
    host = Host(here.access)
    first = await host.ai_enqueue(call(2), SPEC, 100)
    assert isinstance(first, Receipt)
    assert not first.is_repeat
    await here.seal()
    again = await host.ai_enqueue(call(3), SPEC, 100)
    assert isinstance(again, Receipt)
    assert (again.task_id, again.height, again.is_repeat) == (first.task_id, 2, True)
    other = await host.ai_enqueue(call(3, tx=2), SPEC, 100)
    assert isinstance(other, Receipt)
    assert other.task_id != first.task_id


@pytest.mark.parametrize("height", [1, 3])
async def test_a_call_at_a_height_that_is_not_open_is_refused_and_does_nothing(here: ResultNode, height: int) -> None:
    host, job = Host(here.access), await here.pending()
    before = digest(here.engine.undurable_state)
    await unchanged(here, await host.ai_enqueue(call(height), SPEC, 100), "HeightMismatch", before)
    await unchanged(here, await host.quantum_enqueue(call(height), CIRCUIT, 100), "HeightMismatch", before)
    await unchanged(here, await host.read_result(call(height), job), "HeightMismatch", before)
    await unchanged(here, await host.consume_result(call(height), job), "HeightMismatch", before)


@pytest.mark.rule("RES-007")
async def test_a_call_for_another_chain_is_refused_and_does_nothing(here: ResultNode) -> None:
    host, job = Host(here.access), await here.pending()
    before, wrong = digest(here.engine.undurable_state), call(2, chain_id=1)
    for no in (
        await host.ai_enqueue(wrong, SPEC, 100),
        await host.read_result(wrong, job),
        await host.consume_result(wrong, job),
    ):
        await unchanged(here, no, "ChainMismatch", before)
    short = Call(chain_id=1337, height=Height(2), tx_hash=Digest(b"x"), caller=AccountId("alice"))
    await unchanged(here, await host.ai_enqueue(short, SPEC, 100), "InvalidParams", before)


@pytest.mark.rule("RES-002", "RES-004", "RES-005")
async def test_a_contract_reads_from_the_next_block_on_as_often_as_it_likes_and_uses_once(here: ResultNode) -> None:
    host, job = Host(here.access), await here.resolved(b"output")
    no = await host.read_result(call(2), job)
    assert isinstance(no, Refused)
    assert no.name == "NoResultYet"
    await here.seal()
    before = digest(here.engine.undurable_state)
    for _ in range(2):
        seen = await host.read_result(call(3), job)
        assert isinstance(seen, HostResult)
        assert (seen.result_digest, seen.size, seen.height_resolved) == (result_digest(b"output"), 6, 2)
        assert not seen.is_consumed
    assert digest(here.engine.undurable_state) == before
    used = await host.consume_result(call(3, tx=5), job)
    assert isinstance(used, ConsumptionReceipt)
    assert not used.is_repeat
    again = await host.consume_result(call(3, tx=5), job)
    assert isinstance(again, ConsumptionReceipt)
    assert (again.event, again.is_repeat) == (used.event, True)
    for other, name in ((call(3, tx=6), "AlreadyConsumed"), (call(3, tx=7, caller="bob"), "AlreadyConsumed")):
        refused = await host.consume_result(other, job)
        assert isinstance(refused, Refused)
        assert refused.name == name
    seen = await host.read_result(call(3), job)
    assert isinstance(seen, HostResult)
    assert seen.is_consumed


async def test_a_malformed_spec_is_refused_with_the_path_of_the_field(here: ResultNode) -> None:
    no = await Host(here.access).ai_enqueue(call(2), {"model": "echo"}, 100)
    assert isinstance(no, Refused)
    assert (no.rule, "payload.spec" in no.message) == ("JOB-003", True)


@pytest.mark.parametrize(
    ("spec", "fee", "options"),
    [
        (None, 100, None),
        ("model", 100, None),
        ({1: 2}, 100, None),
        ({"model": "echo", "prompt": "\ud800"}, 100, None),
        ({"model": "echo", "prompt": {"a": {1, 2}}}, 100, None),
        (SPEC, "100", None),
        (SPEC, None, None),
        (SPEC, 1.5, None),
        (SPEC, 2**70, None),
        (SPEC, 100, "fast"),
        (SPEC, 100, Options(units="two")),  # type: ignore[arg-type]
        (SPEC, 100, Options(deny=["x"])),
        (SPEC, 100, Options(quorum=QuorumSpec(1, 3))),
        (SPEC, 100, Options(proof="zk-foo")),
        ({"model": "digits", "prompt": "?"}, 100, None),
    ],
)
async def test_whatever_a_contract_passes_is_answered_by_a_refusal(
    here: ResultNode, spec: Any, fee: Any, options: Any
) -> None:
    before = digest(here.engine.undurable_state)
    await unchanged(here, await Host(here.access).ai_enqueue(call(2), spec, fee, options), "InvalidParams", before)


@pytest.mark.parametrize(
    "told", [{"tx_hash": None}, {"caller": 7}, {"height": "2"}, {"chain_id": None}, {"tier": "GOLD"}]
)
async def test_so_is_a_call_that_is_bound_to_nothing(here: ResultNode, told: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"chain_id": 1337, "height": 2, "tx_hash": some_id(1), "caller": "alice"}
    wrong, before = Call(**(fields | told)), digest(here.engine.undurable_state)
    host, odd = Host(here.access), Any
    await unchanged(here, await host.ai_enqueue(wrong, SPEC, 100), "InvalidParams", before)
    await unchanged(here, await host.read_result(wrong, TaskId(bytes(32))), "InvalidParams", before)
    await unchanged(here, await host.consume_result(wrong, TaskId(bytes(32))), "InvalidParams", before)
    for wrong_id in (None, "00" * 32, 7, odd):
        await unchanged(here, await host.read_result(call(2), wrong_id), "InvalidParams", before)  # type: ignore[arg-type]
        await unchanged(here, await host.consume_result(call(2), wrong_id), "InvalidParams", before)  # type: ignore[arg-type]


async def test_options_know_a_quorum_and_whom_a_job_allows_and_denies(here: ResultNode) -> None:
    options = Options(quorum=QuorumSpec(2, 3), allow=["aa" * 32, "bb" * 32], deny=["cc" * 32])
    receipt = await Host(here.access).ai_enqueue(call(2), SPEC, 100, options)
    assert isinstance(receipt, Receipt)
    job = here.engine.undurable_state.queue.jobs[receipt.task_id]
    assert (job.quorum_n, job.quorum_m) == (2, 3)
    needs: Any = decode(job.requirements)
    assert (needs["allow"], needs["deny"]) == (["aa" * 32, "bb" * 32], ["cc" * 32])
