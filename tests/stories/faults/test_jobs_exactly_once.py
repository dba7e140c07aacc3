"""The whole way with real processes: agents and node are killed, streams are cut, and every job ends exactly once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.counts import counts
from tests.loopback_ports import free_ports
from tests.storage.stores import JOURNALS, Place
from tests.stories.agent_process import AgentProcess
from tests.stories.cuttable_proxy import CuttableProxy
from tests.stories.faults.test_node_killed import fold_journal
from tests.stories.node_process import NodeProcess, on_postgres

from holdfast.adapters.keys.signing import verify
from holdfast.client import AsyncClient
from holdfast.client.answers import JobReceipt
from holdfast.client.node_socket import NodeSocket
from holdfast.core import journal_codec
from holdfast.core.base.values import BatchNo, ChainId, Network
from holdfast.core.chain.header import genesis_signed, why_not_next
from holdfast.core.chain.model import signed_of
from holdfast.core.escrow.invariants import broken_invariants as broken_money
from holdfast.core.evidence.messages import EvidenceStored
from holdfast.core.job.model import JobState
from holdfast.core.queue.invariants import broken_invariants as broken_queue
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.demo.spools import last_spooled
from holdfast.lightclient.headers import parse_header
from holdfast.ports import Journal

PATIENCE_S = 60.0
JOBS = counts(60, 1_000)
PROVIDERS = ("oak", "ash", "fir")
QUICK = {
    "HOLDFAST_POLICY__CHAIN__BLOCK_MS": "200",
    "HOLDFAST_POLICY__CHAIN__IDLE_BLOCK_MS": "1000",
    "HOLDFAST_POLICY__CHAIN__FINALITY_DEPTH": "3",
    "HOLDFAST_POLICY__LEASE__AI_MS": "4000",
    "HOLDFAST_POLICY__LEASE__ACK_TIMEOUT_MS": "2000",
    "HOLDFAST_POLICY__RETRY__BASE_AI_MS": "200",
    "HOLDFAST_POLICY__RETRY__CAP_MS": "2000",
    "HOLDFAST_POLICY__RETRY__FAILURES_MAX": "50",
    "HOLDFAST_POLICY__PROVIDER__LEASE_EXPIRED_DENY_MS": "1000",
    "HOLDFAST_POLICY__PROVIDER__COOLDOWN_MS": "1000",
    "HOLDFAST_POLICY__PROVIDER__COOLDOWN_CAP_MS": "2000",
    "HOLDFAST_POLICY__PROVIDER__HEARTBEAT_MS": "1000",
    "HOLDFAST_GRPC__ENABLED": "true",
}
"""Short times, so that what takes minutes in earnest happens within a test."""


class JobRun:
    """A node, three agents that reach it over lines which can be cut, and a requester."""

    def __init__(self, place: Place, store: str) -> None:
        self.place, self.store, self.random = place, store, Random(20261116)
        self.port, outside = free_ports(2)
        self.line = CuttableProxy(outside, self.port)
        settings = QUICK | {"HOLDFAST_GRPC__PORT": str(self.port)}
        settings |= on_postgres(place.address) if store == "postgres" else {}
        self.node = NodeProcess(place.folder / "data", "node", settings)
        self.agents = [AgentProcess(place.folder / name, name, self.line.port) for name in PROVIDERS]

    async def begin(self) -> None:
        await self.node.up()
        await self.line.open()
        for agent in self.agents:
            agent.up()
        async with NodeSocket(self.node.data, PATIENCE_S) as client:
            await client.mint(bytes(32), "alice", 10**9)
            ids = await self._registered(client)
            for number, (id_, account) in enumerate(sorted(ids.items()), start=1):
                await client.mint(bytes([number]) * 32, account, 10_000)
                await client.call(
                    "provider.stake", provider_id=id_, amount=10_000, request=(bytes([number]) * 32).hex()
                )

    async def _registered(self, client: NodeSocket) -> dict[str, str]:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = (await client.call("aicf.listProviders"))["providers"]
                if len(found) == len(PROVIDERS):
                    return {each["provider"]["id"]: each["provider"]["account"] for each in found}
                await asyncio.sleep(0.05)

    async def disturb(self) -> None:
        """Something breaks: the node, an agent, or every line."""
        match self.random.randrange(4):
            case 0:
                await self.node.kill()
                await self.node.up()
            case 1:
                agent = self.random.choice(self.agents)
                agent.kill()
                agent.up()
            case _:
                self.line.cut()

    async def end(self) -> None:
        for agent in self.agents:
            agent.end()
        await self.line.close()
        self.node.end()


# On SQLite `tests/stories/whole_way` shows the same, and more, every day.
@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.full), "postgres"])
async def network(request: pytest.FixtureRequest, place: Place) -> AsyncIterator[JobRun]:
    made = JobRun(Place(place.folder, place.server), request.param)
    yield made
    await made.end()


def payload(number: int) -> dict[str, Any]:
    if number % 10 == 0:
        return {"kind": "AI", "spec": {"model": "sleep", "prompt": f"nap {number}", "params": {"ms": 300}}}
    return {"kind": "AI", "spec": {"model": "echo", "prompt": f"job {number}"}, "units": 1 + number % 3}


@pytest.mark.timeout(counts(240, 900))
@pytest.mark.rule("EVD-005", "EVD-006", "PRF-003", "RES-002", "RES-008", "TIER-001", "RPC-002")
async def test_every_job_ends_exactly_once_whatever_breaks(network: JobRun) -> None:
    await network.begin()
    data = network.node.data
    async with NodeSocket(data, PATIENCE_S) as client, AsyncClient(data, timeout_s=PATIENCE_S) as requester:
        receipts = [
            await requester.enqueue(payload(n), 100, caller="alice", idempotency_key=f"job {n}") for n in range(JOBS)
        ]
        done: list[str] = []
        waiting = [asyncio.create_task(check_finished(data, each.task_id, done)) for each in receipts]
        for share in range(1, 9):
            while len(done) < share * JOBS // 10:
                await asyncio.sleep(0.01)
                assert not any(task.done() and task.exception() for task in waiting)
            await network.disturb()
        await asyncio.gather(*waiting)
        await check_totals(network, client, requester, receipts)


async def check_finished(data: Path, task_id: str, done: list[str]) -> None:
    async with AsyncClient(data, timeout_s=PATIENCE_S) as client:
        await client.wait(task_id)
    done.append(task_id)


async def check_totals(network: JobRun, client: NodeSocket, requester: AsyncClient, receipts: list[JobReceipt]) -> None:
    for number, receipt in enumerate(receipts):
        shown = await client.job(receipt.task_id)
        assert shown["job"]["state"] == JobState.COMPLETED
        prompt = payload(number)["spec"]["prompt"]
        assert prompt.encode() in await requester.result(receipt)  # checked against its digest
    proof = await client.call("cap.proveResult", task_id=receipts[0].task_id)
    signed = parse_header(proof["block"], "the proof", proof["chain_id"])
    assert verify(signed.header.proposer, signed.hash, signed.signature)
    await check_delivered(network, client)
    for agent in network.agents:
        assert await agent.stop() == 0, agent.log()[-2_000:]
        assert "evidence_unacked" not in agent.log()
    last = (await client.status())["event"]
    seen: Counter[tuple[str, str]] = Counter()
    numbers = []
    async for event in client.follow():
        numbers.append(event["number"])
        if event["type"] in ("jobAdmitted", "jobCompleted"):
            seen[event["type"], event["event"].get("task_id") or event["event"]["id"]] += 1
        if event["number"] == last:
            break
    assert numbers == list(range(1, last + 1))
    assert seen == Counter({(kind, each.task_id): 1 for kind in ("jobAdmitted", "jobCompleted") for each in receipts})
    assert await network.node.stop() == 0
    where = Place(network.node.data, network.place.server) if network.store == "sqlite" else network.place
    check_state(await fold_journal(JOURNALS[network.store](where)()), receipts)
    stored = await stored_evidence(JOURNALS[network.store](where)())
    for agent in network.agents:
        check_evidence_complete(agent, stored)
    finished = sum(raw.count(b'"LEASE_COMPLETED"') for raw in stored.values())
    assert finished >= len(receipts)


async def check_delivered(network: JobRun, client: NodeSocket) -> None:
    """Also what agents that were killed have left: one that stops waits for the records of its own session alone."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            left = {each: last for agent in network.agents for each, last in last_spooled(agent.data).items()}
            found = (await client.call("evidence.listSessions", limit=1_000))["sessions"]
            watermarks = {f"{each['channel']}/{each['session']}": each["acked"] for each in found}
            if all(watermarks.get(session, 0) >= last for session, last in left.items()):
                return
            await asyncio.sleep(0.05)


async def stored_evidence(journal: Journal) -> dict[tuple[str, str], bytes]:
    """All lines that the node holds, by channel and session, in the order in which it took them."""
    lines: dict[tuple[str, str], list[bytes]] = {}
    async for batch in journal.read(BatchNo(0)):
        for event in journal_codec.unpack(batch):
            if isinstance(event, EvidenceStored):
                raw = event.payload.inline or await journal.attachment(batch.number, event.payload.digest)
                assert raw is not None
                known = lines.setdefault((event.channel, event.session), [])
                assert event.first == 1 + sum(part.count(b"\n") for part in known)
                known.append(raw)
    await journal.close()
    return {key: b"".join(parts) for key, parts in lines.items()}


def check_evidence_complete(agent: AgentProcess, stored: dict[tuple[str, str], bytes]) -> None:
    """Whatever the agent still has on its disk, the node has, byte for byte."""
    for file in (agent.data / "spool").glob("*/*.spool.jsonl"):
        session = file.name.removesuffix(".spool.jsonl")
        assert stored[file.parent.name, session] == file.read_bytes()


def check_state(state: State, receipts: list[Any]) -> None:
    """The journal, folded from nothing: money adds up, evidence has no gaps, every header is what it should be."""
    assert broken_money(state.ledger) == []
    assert broken_queue(state.queue, state.ledger) == []
    assert not state.leases.by_id
    assert digest(state)
    assert state.chain.log.size == len(receipts)
    assert state.watermarks
    before = None
    for recent in state.chain.unfinalized.values():
        signed = signed_of(recent.block, ChainId(state.policy.chain_id))
        if before is not None:
            assert why_not_next(before, signed, verify) is None
        before = signed
    assert genesis_signed(ChainId(state.policy.chain_id), Network.DEVELOPMENT).header.height == 0
