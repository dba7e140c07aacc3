"""Jobs are waited for from the event cursor, over HTTP with a key: through rollbacks, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.http.http_node import HttpNode, http_server
from tests.api.result_node import ResultNode, result_node

from holdfast import AsyncClient, Client
from holdfast.adapters.warm_store import WarmStore
from holdfast.client import JobEnded, WaitTimeout
from holdfast.client.answers import JobReceipt
from holdfast.client.job_lines import JobRequest
from holdfast.client.refusals import CancelledError, ForbiddenError, NoResultYetError
from holdfast.core.base.values import TaskId
from holdfast.core.key.model import Role
from holdfast.core.match.messages import Match
from holdfast.lightclient.headers import VerificationFailed

pytestmark = pytest.mark.rule("EVT-002", "RES-009")
PAYLOAD = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}


class Requester:
    """A node over HTTP, alice's client, and a provider that does what the test says."""

    def __init__(self, results: ResultNode, node: HttpNode, token: str) -> None:
        self.results, self.node, self.token = results, node, token
        self.client = AsyncClient(node.url, token)

    async def finish(self, receipt: JobReceipt, output: bytes = b"out") -> None:
        """Its output is accepted and waits for its block."""
        assert self.results.access.blobs is not None
        incoming = await self.results.access.blobs.receive()
        await incoming.write(output)
        await incoming.keep()
        await self.results.do(Match())
        await self.results.finish(self.results.proof(TaskId(bytes.fromhex(receipt.task_id)), output))

    def following(self) -> int:
        return len(self.node.server._fanout.subscribers)

    async def until_following(self) -> None:
        async with asyncio.timeout(10):
            while not self.following():
                await asyncio.sleep(0.001)


@pytest.fixture
async def alice(tmp_path: Path) -> AsyncIterator[Requester]:
    async with result_node() as results:
        results.access.blobs = WarmStore(tmp_path / "warm")
        async with http_server(results.access, results.world, drain_ms=500) as server:
            node = HttpNode(results.world, results.engine, results.access, server)
            requester = Requester(results, node, await node.token(Role.REQUESTER))
            async with requester.client:
                yield requester


async def test_a_job_is_waited_for_until_its_block_is_sealed_and_its_output_is_verified(alice: Requester) -> None:
    receipt = await alice.client.enqueue(PAYLOAD, 100)
    waiting = asyncio.create_task(alice.client.wait(receipt))
    await alice.until_following()
    await alice.finish(receipt, b"hello")
    with pytest.raises(NoResultYetError):
        await alice.client.result(receipt)
    await alice.results.seal()
    result = await waiting
    assert (result.task_id, result.result_size, result.caller) == (receipt.task_id, 5, "alice")
    assert await alice.client.result(result) == b"hello"
    with pytest.raises(VerificationFailed, match="not signed by its proposer"):  # as the simulated blocks are
        await alice.client.result(receipt, verify=True)


async def test_what_has_happened_before_the_wait_is_known_at_once(alice: Requester) -> None:
    receipts = await alice.client.enqueue_many([PAYLOAD] * 3, 100)
    for receipt in receipts[:2]:
        await alice.finish(receipt, receipt.task_id.encode())
    await alice.results.seal()
    await alice.client.cancel(receipts[2])
    assert (await alice.client.wait(receipts[0])).task_id == receipts[0].task_id
    assert (await alice.client.wait(receipts[1].task_id)).task_id == receipts[1].task_id
    with pytest.raises(CancelledError) as caught:
        await alice.client.wait(receipts[2])
    assert isinstance(caught.value, JobEnded)


async def test_outcomes_come_as_jobs_end_each_once_though_blocks_are_rolled_back(alice: Requester) -> None:
    receipts = await alice.client.enqueue_many([PAYLOAD] * 4, 100)
    ended: list[str] = []

    async def consume() -> dict[str, Any]:
        found = {}
        async for outcome in alice.client.as_completed(receipts):
            assert outcome.task_id not in found
            found[outcome.task_id] = outcome.error
            ended.append(outcome.task_id)
        return found

    consuming = asyncio.create_task(consume())
    await alice.until_following()
    head = alice.results.engine.undurable_state.chain.head.height
    await alice.finish(receipts[2])
    await alice.results.seal()
    await alice.results.roll_back(head)
    await alice.results.seal()
    await alice.client.cancel(receipts[0])
    for receipt in (receipts[3], receipts[1]):
        await alice.finish(receipt)
    await alice.results.seal()
    found = await consuming
    assert found.keys() == {each.task_id for each in receipts}
    assert [type(found[each.task_id]) for each in receipts] == [CancelledError, type(None), type(None), type(None)]


async def test_map_gives_outputs_in_the_order_of_the_jobs(alice: Requester) -> None:
    async def work() -> None:
        """The newest job first."""
        for _ in range(2):
            async with asyncio.timeout(10):
                while len(jobs := alice.results.engine.undurable_state.queue.jobs) < 3:
                    await asyncio.sleep(0.001)
            receipts = [job for job in jobs.values() if not job.ended_ms]
            for job in reversed(receipts):
                await alice.finish(receipt_like(job.id.hex()), str(job.nonce).encode())
                await alice.results.seal()
            await alice.results.seal(20)

    jobs = [JobRequest(PAYLOAD, 100, nonce=number) for number in range(3)]
    working = asyncio.create_task(work())
    assert [output async for output in alice.client.map(jobs, ahead=3)] == [b"0", b"1", b"2"]
    working.cancel()


def receipt_like(task_id: str) -> JobReceipt:
    fields = dict.fromkeys(JobReceipt.__struct_fields__, 0) | {"task_id": task_id}
    return JobReceipt(**fields)  # type: ignore[arg-type]


async def test_a_job_of_somebody_else_can_be_waited_for_but_not_read(alice: Requester) -> None:
    receipt = await alice.client.enqueue(PAYLOAD, 100)
    async with AsyncClient(alice.node.url, await alice.node.token(Role.REQUESTER, account="bob")) as bob:
        waiting = asyncio.create_task(bob.wait(receipt.task_id))
        await alice.until_following()
        await alice.finish(receipt)
        await alice.results.seal()
        result = await waiting
        assert (result.caller, result.charged, result.payee) == ("", 0, "")
        with pytest.raises(ForbiddenError):
            await bob.result(result)


async def test_a_wait_ends_when_its_time_is_over(alice: Requester) -> None:
    receipt = await alice.client.enqueue(PAYLOAD, 100)
    with pytest.raises(WaitTimeout):
        await alice.client.wait(receipt, timeout_s=0.2)
    assert (await alice.client.status()).event >= receipt.event


async def test_a_subscription_is_not_left_behind(alice: Requester) -> None:
    receipt = await alice.client.enqueue(PAYLOAD, 100)
    await alice.finish(receipt)
    await alice.results.seal()
    await alice.client.wait(receipt)
    async for event in alice.client.events(after=0, types=["jobAdmitted"]):
        assert event.task_id == receipt.task_id
        break
    async with asyncio.timeout(10):
        while alice.following():
            await asyncio.sleep(0.001)


async def test_the_blocking_client_waits_and_reads_the_same_way(alice: Requester, tmp_path: Path) -> None:
    def ask(receipts: list[JobReceipt]) -> list[bytes]:
        with Client(alice.node.url, alice.token) as client:
            outcomes = list(client.as_completed(receipts))
            client.download(receipts[0], tmp_path / "out")
            return sorted(client.result(outcome.unwrap()) for outcome in outcomes)

    receipts = await alice.client.enqueue_many([PAYLOAD] * 3, 100)
    asking = asyncio.create_task(asyncio.to_thread(ask, receipts))
    await alice.until_following()
    for number, receipt in enumerate(receipts):
        await alice.finish(receipt, b"%d" % number)
        await alice.results.seal()
    assert await asking == [b"0", b"1", b"2"]
    assert (tmp_path / "out").read_bytes() == b"0"
