"""The lives of results on real stores: what the source's test plan asks for, over restarts and reorgs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.api.result_node import SERVING, ResultNode
from tests.api.rpc.rpc_callers import ALICE as ALICE_HERE
from tests.api.rpc.rpc_callers import RpcNode
from tests.core.core_driver import ALICE
from tests.simulation.world import SimulatedClock, World
from tests.storage.stores import JOURNALS, TABLES, Place

from holdfast.adapters.files import AtomicFolder
from holdfast.api.node_access import NodeAccess
from holdfast.core import journal_codec
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import BatchNo, ChainId, TaskId
from holdfast.core.escrow.invariants import broken_invariants as broken_money
from holdfast.core.job.ids import version_of
from holdfast.core.lease.messages import CompletionSubmitted, ExpireDue
from holdfast.core.policy import ChainPolicy, Policy
from holdfast.core.proof.envelope import packed_nullifier, unpack
from holdfast.core.proof.messages import CompletionIgnored, RecordVerdict
from holdfast.core.queue.invariants import broken_invariants as broken_queue
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine import queries
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted, EngineStatus
from holdfast.engine.queries.node import Ping
from holdfast.history.check import check
from holdfast.history.full_journal import FullJournal


class ResultRun(ResultNode):
    """A node on a real store, told step by step; it can be stopped and started again."""

    def __init__(self, place: Place, store: str, policy: Policy) -> None:
        self.place, self.policy, self.clock = place, policy, SimulatedClock()
        self._open_journal, self._open_tables = JOURNALS[store](place), TABLES[store](place)
        world = World(policy)
        world.clock = self.clock
        super().__init__(world, self._engine())

    def _engine(self) -> Engine:
        files = AtomicFolder(self.place.folder / "snapshots")
        return Engine(self._open_journal(), self._open_tables(), files, self.clock, self.policy)

    async def restart(self, policy: Policy | None = None) -> None:
        await self.end()
        self.policy = policy or self.policy
        self.engine = self._engine()
        self.access = NodeAccess(self.engine, self.engine.submit)
        await self.engine.start()

    async def end(self) -> None:
        if self.engine.status is EngineStatus.STOPPED:
            return
        await self.engine.stop()
        await self.engine.tables.close()
        await self.engine.journal.close()

    @property
    def at(self) -> RpcNode:
        return RpcNode(self.world, self.access)

    async def read(self, job: TaskId) -> str:
        """The status of a result, or the name of what stands against reading it."""
        said = await self.at.raw(ALICE_HERE, "cap.readResult", task_id=job.hex())
        return str(said["error"]["data"]["name"] if "error" in said else said["result"]["status"])

    async def consume(self, job: TaskId, nonce: int) -> str:
        said = await self.at.raw(ALICE_HERE, "cap.consumeResult", task_id=job.hex(), nonce=nonce)
        return str(said["error"]["data"]["name"] if "error" in said else "consumed")

    async def check_invariants(self) -> None:
        """The invariants hold, the fold of the journal is the live state, and every row is as the fold gives it."""
        await self.engine.query_durable(Ping())
        state = self.engine.undurable_state
        assert broken_money(state.ledger) == []
        assert broken_queue(state.queue, state.ledger) == []
        live = digest(state)
        await self.end()
        journal = FullJournal(self._open_journal(), AtomicFolder(self.place.folder / "archive"))
        tables = self._open_tables()
        again, tip = State(self.policy), JournalHead()
        async for batch in journal.read(BatchNo(0)):
            tip = journal_codec.fold(again, tip, (batch,))
        assert digest(again) == live
        found = await check(journal, tables, AtomicFolder(self.place.folder / "snapshots"), self.policy)
        assert [each for each in found if not each.is_good] == []
        await tables.close()
        await journal.close()


@pytest.fixture(params=["sqlite", "postgres"])
async def story(request: pytest.FixtureRequest, place: Place) -> AsyncIterator[ResultRun]:
    made = ResultRun(place, request.param, SERVING)
    await made.engine.start()
    await made.prepare()
    yield made
    await made.end()


@pytest.mark.rule("RES-002")
async def test_resolved_in_a_block_readable_from_the_next_one_on_also_after_a_restart(story: ResultRun) -> None:
    job = await story.resolved()
    assert await story.read(job) == "NoResultYet"
    await story.restart()
    assert await story.read(job) == "NoResultYet"
    await story.seal()
    assert await story.read(job) == "RESOLVED"
    assert await story.read(job) == "RESOLVED"
    await story.seal(20)  # it is history now
    assert await story.read(job) == "RESOLVED"
    await story.restart()
    assert await story.read(job) == "RESOLVED"
    await story.check_invariants()


@pytest.mark.rule("RES-001", "RCV-002")
async def test_a_proof_counts_once_whether_it_comes_again_soon_or_after_a_restart(story: ResultRun) -> None:
    job, proof = await story.submission()
    await story.do(proof)
    await story.do(RecordVerdict(proof.lease_id, True))
    digest_before = story.engine.undurable_state.results[job].result_digest
    for is_first in (True, False):
        again = await story.engine.submit(proof)
        assert not isinstance(again, Refused)
        assert again.is_repeat
        body = proof.envelope.body.replace(digest_before, bytes(32))
        other = msgspec.structs.replace(proof, envelope=msgspec.structs.replace(proof.envelope, body=body))
        conflict = await story.engine.submit(other)
        assert isinstance(conflict, Accepted)
        assert isinstance(conflict.fact, CompletionIgnored) == is_first, "another digest is slashed, once"
        assert conflict.is_repeat != is_first
        await story.seal(20)
        await story.restart()
    assert await story.read(job) == "RESOLVED"
    await story.check_invariants()


@pytest.mark.rule("RES-005", "RES-006")
async def test_a_reorg_rolls_back_result_money_and_use_and_the_same_proof_resolves_it_again(story: ResultRun) -> None:
    job = await story.readable()  # resolved in block 2
    found = await queries.result(story.engine, job)
    assert found is not None
    before = (found.result_digest, found.proof_nullifier)
    await story.seal(3)
    assert await story.consume(job, 1) == "consumed"
    await story.seal()
    await story.roll_back(1)
    assert await story.read(job) == "NoResultYet"
    assert story.engine.undurable_state.ledger.accounts[ALICE].held == 0  # charged again in the block that is open
    await story.restart()
    assert await story.read(job) == "NoResultYet"
    await story.seal()
    assert await story.read(job) == "RESOLVED"
    found = await queries.result(story.engine, job)
    assert found is not None
    assert (found.result_digest, found.proof_nullifier, found.height_resolved) == (*before, 2)
    assert await story.consume(job, 1) == "consumed"
    assert await story.consume(job, 2) == "AlreadyConsumed"
    await story.seal(20)
    await story.restart()
    assert await story.consume(job, 2) == "AlreadyConsumed"
    assert await story.read(job) == "CONSUMED"
    await story.check_invariants()


@pytest.mark.rule("RES-003", "RES-007", "TTL-001")
async def test_a_job_that_expires_is_refunded_and_has_no_result(story: ResultRun) -> None:
    job = await story.pending()
    story.clock.monotonic += story.policy.ttl.ai_ms
    await story.do(ExpireDue())
    assert await story.read(job) == "Expired"
    assert job not in story.engine.undurable_state.results
    assert await queries.result(story.engine, job) is None
    await story.seal(20)
    account = story.engine.undurable_state.ledger.accounts[ALICE]
    assert (account.available, account.held, account.pending) == (1_000_000, 0, 0)
    assert await story.read(job) == "Expired"
    await story.check_invariants()


@pytest.mark.rule("CAN-003")
async def test_a_live_network_moves_to_new_tags_through_a_grace_window(story: ResultRun) -> None:
    """Jobs of before are done within and after the window; whoever asks again over the boundary gets its first job."""
    old = await story.pending()
    chain = ChainPolicy(
        finality_depth=12, tags_v2_height=story.engine.undurable_state.open_height + 2, tags_grace_blocks=3
    )
    await story.restart(msgspec.structs.replace(SERVING, chain=chain))
    assert await version(story, old) == 1
    await story.seal(2)  # the window begins
    new = await story.resolved()
    assert await version(story, new) == 2
    assert story.engine.undurable_state.results[new].proof_nullifier == await nullifier(story, new, 2)
    await story.seal(3)  # and ends
    later = await story.resolved()
    assert await version(story, later) == 2
    await story.seal()
    assert [await story.read(job) for job in (old, new, later)] == ["NoResultYet", "RESOLVED", "RESOLVED"]
    assert await story.consume(new, 1) == "consumed"
    await story.restart()
    again = await story.engine.submit(story.request(1))  # the very first request, asked again over the boundary
    assert not isinstance(again, Refused)
    assert again.is_repeat
    await story.finish(story.proof(old))
    await story.seal()
    assert (await version(story, old), await story.read(old)) == (1, "RESOLVED")
    assert await story.consume(old, 2) == "consumed"
    await story.check_invariants()


async def version(story: ResultRun, job: TaskId) -> int:
    found = await queries.job(story.engine, job)
    assert found is not None
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}
    return version_of(job, ChainId(1337), found.height, found.tx_hash, b"alice", payload)


async def nullifier(story: ResultRun, job: TaskId, tag: int) -> bytes:
    """As anybody recomputes it from what the provider signed."""
    found = story.engine.undurable_state.results[job]
    async for batch in story.engine.journal.read(BatchNo(0)):
        for event in journal_codec.unpack(batch):
            if isinstance(event, CompletionSubmitted) and event.digest == found.result_digest:
                envelope = unpack(event.envelope)
                if bytes(job) in envelope.body:
                    return packed_nullifier(envelope.type, 0, envelope.body, tag)
    raise AssertionError("no agent submitted it")
