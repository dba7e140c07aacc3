"""The table of named queries: every query has one handler, and no answer shares a mutable record with live state."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from tests.core.commands import some_id
from tests.core.core_driver import ALICE, CoreDriver
from tests.simulation.journal import Fault
from tests.simulation.world import World

from holdfast.core.base.canonical import canonical
from holdfast.core.base.values import Amount, Digest, EventNo, Height, Kind, LeaseId, ReservationId, TaskId, Tier
from holdfast.core.escrow.messages import Mint, Reserve
from holdfast.core.evidence.messages import RejectedRecord, StoreEvidence
from holdfast.core.key.messages import CreateKey
from holdfast.core.key.model import Role, secret_hash
from holdfast.core.retention.model import Pass
from holdfast.core.schedule.messages import CreateSchedule
from holdfast.core.state import State
from holdfast.engine.lookups import catalogue, overview, schedules
from holdfast.engine.outcome import Accepted
from holdfast.engine.queries import accounts, blobs, chain, evidence, jobs, metrics, node, providers, retention
from holdfast.engine.queries.archive import validators
from holdfast.engine.queries.query import Query
from holdfast.engine.queries.table import QUERIES, answer

KEY_ID, SECRET = "00112233445566aa", b"secret"


def all_queries(kind: type[Any] = Query) -> set[type[Any]]:
    return {each for direct in kind.__subclasses__() for each in (direct, *all_queries(direct))}


def busy_state() -> tuple[State, dict[str, TaskId]]:
    """A state with a job in every phase, a reservation, a key, evidence and a dead letter."""
    core = CoreDriver()
    core.funded()
    core.provider(price=3)
    done = core.enqueue(nonce=1)
    core.seal()
    core.match()
    core.ack(done)
    core.complete(done)
    core.seal()
    core.consume(done)
    leased = core.enqueue(nonce=2)
    core.match()
    core.ack(leased)
    waiting = core.enqueue(nonce=3)
    core.do(Reserve(ReservationId(some_id(9)), ALICE, Amount(7)))
    core.do(CreateKey(KEY_ID, secret_hash(SECRET), Role.REQUESTER, ALICE))  # type: ignore[arg-type]
    bad = RejectedRecord(1, "poison", "not JSON", b"x", 1, Digest(bytes(32)))
    core.do(StoreEvidence(b"", "c", "s1", 1, 2, b"{}\n{}\n", (bad,)))  # type: ignore[arg-type]
    core.do(CreateSchedule(ALICE, "nightly", Tier.FREE, canonical({}), 1, cron="@daily"))
    return core.state, {"done": done, "leased": leased, "waiting": waiting}


def examples(state: State, task: dict[str, TaskId]) -> list[Query[Any]]:
    """One query of each type, where it matters with an answer that is not empty."""
    (provider_id,) = state.providers
    (dead_letter,) = state.dead_letters
    lease = state.leases.by_job[task["leased"]]
    waiting = msgspec.structs.replace(state.queue.jobs[task["waiting"]])
    (schedule,) = state.schedules.by_id
    start = answer(state, providers.StartQuote(waiting))
    page = {"cursor": b"", "limit": 10, "now_ms": 0}
    return [
        node.Ping(),
        node.GetOwner(),
        node.GetStateDigest(),
        node.GetPolicy(),
        node.GetClaimingEvent(next(iter(state.claims.recent))),
        node.GetEvictedAsOf(),
        accounts.GetAccount(ALICE),
        accounts.GetOpenReservation(ReservationId(some_id(9))),
        accounts.CountLedger(),
        accounts.GetBalance(None, provider_id),
        accounts.AuthenticateKey(KEY_ID, SECRET, 0),
        accounts.GetKey(next(iter(state.keys))),
        accounts.ListKeys(),
        chain.GetChainHead(),
        chain.GetBlockInMemory(Height(1)),
        chain.GetLeavesInMemory(0, 10),
        chain.GetUnfinalizedResult(task["done"]),
        chain.GetUnfinalizedConsumption(task["done"]),
        chain.GetResultMoment(task["done"]),
        chain.IsHotOutputDropped(EventNo(1)),
        jobs.GetLiveJob(task["waiting"]),
        jobs.GetOwnerOfJob(task["waiting"]),
        jobs.GetQuorumVotes(task["waiting"]),
        jobs.GetAttempts(task["leased"]),
        jobs.GetLeasesOfJobs(tuple(task.values())),
        jobs.GetLiveLease(LeaseId(bytes(32))),
        providers.HasStake(provider_id),
        jobs.ListLeasesOfProvider(provider_id),
        jobs.ListJobsOfProvider(provider_id, 0, 10),
        jobs.CountLiveLeases(),
        jobs.FilterLiveLeases(frozenset({lease.id})),
        jobs.GetLeaseProofs((lease.id,)),
        jobs.CheckUpload(lease.id, provider_id, Digest(bytes(32)), 0),
        jobs.GetQueuePosition(task["waiting"], Kind.AI, 2**40),
        jobs.GetQueueStatus(),
        providers.GetProvider(provider_id),
        providers.IsProviderKnown(provider_id),
        providers.GetProviderStatus(provider_id),
        providers.GetProviderView(provider_id, 0),
        providers.ListProviders(**page),  # type: ignore[arg-type]
        providers.ListListings(),
        providers.ExplainMatch(provider_id, task["waiting"], 0),
        providers.ResolveSigner(state.providers[provider_id].signing_key),
        providers.StartQuote(waiting),
        providers.ContinueQuote(start.quote, waiting, tuple(start.provider_ids), 0),
        evidence.GetWatermark("c", "s1"),
        evidence.GetSessions((("c", "s1"), ("c", "none"))),
        evidence.ListRetrovueSessions(),
        evidence.GetChannelOwner("c"),
        evidence.GetWaitingDeadLetter(dead_letter),
        evidence.CountDeadLetters(),
        evidence.GetDeadLetterCapacity("c"),
        retention.GetRetentionProgress(),
        blobs.GetLiveBlobs(Height(1)),
        blobs.GetArchiveProgress(),
        blobs.ListPrunable(),
        retention.GetRetentionView(),
        retention.FilterUnreferenced(EventNo(1), ((Digest(bytes(32)), 1),)),
        retention.IsWarmDeletePending(Digest(bytes(32))),
        metrics.GetQueueMetrics(),
        metrics.GetResultCounts(),
        jobs.CheckInput(lease.id, provider_id, 0),
        jobs.FilterInputsInUse((Digest(bytes(32)),)),
        chain.FindBlockInMemory(Digest(bytes(32))),
        providers.FindProviders("oak", 10),
        validators.ListValidators(),
        validators.GetValidatorSet(),
        catalogue.StartCatalogue(),
        catalogue.AddOffers([], (provider_id,), 0),
        overview.GetOverview(0),
        schedules.GetSchedule(schedule),
        schedules.GetScheduleByName(ALICE, "nightly"),
        schedules.ListSchedules(ALICE, None, 0, 10),
    ]


def mutable_parts(value: Any) -> Iterator[Any]:
    """Every list, dict, set and mutable record that can be reached from here; policies are values."""
    if isinstance(value, msgspec.Struct):
        if not value.__struct_config__.frozen:
            yield value
        for name in value.__struct_fields__:
            yield from mutable_parts(getattr(value, name))
    elif isinstance(value, dict):
        yield value
        for each in (*value.keys(), *value.values()):
            yield from mutable_parts(each)
    elif isinstance(value, list | set | tuple | frozenset):
        if isinstance(value, list | set):
            yield value
        for each in value:
            yield from mutable_parts(each)


def test_every_query_is_in_the_table_and_its_handler_returns_what_it_promises() -> None:
    assert set(QUERIES) == all_queries()
    for query, handler in QUERIES.items():
        (promised,) = get_args(query.__orig_bases__[0])  # type: ignore[attr-defined]
        hints = get_type_hints(handler)
        assert (hints["return"], [each for name, each in hints.items() if name != "return"]) == (
            promised,
            [State, query],
        )


def test_no_answer_shares_anything_mutable_with_the_state() -> None:
    state, task = busy_state()
    live = {id(part) for part in mutable_parts(state)}
    asked = examples(state, task)
    assert {type(query) for query in asked} == set(QUERIES) - {providers.GetHypotheticalJob}
    for query in asked:
        result = answer(state, query)
        shared = [part for part in mutable_parts(result) if id(part) in live]
        assert shared == [], f"{type(query).__name__} hands out live state"


def test_queries_change_nothing() -> None:
    state, task = busy_state()
    before = answer(state, node.GetStateDigest())
    asked = examples(state, task)
    first = [answer(state, query) for query in asked]
    assert [answer(state, query) for query in asked] == first
    assert answer(state, node.GetStateDigest()) == before


def test_a_quote_is_extended_without_changing_the_one_that_was_asked_with() -> None:
    state, task = busy_state()
    job = msgspec.structs.replace(state.queue.jobs[task["waiting"]])
    start = answer(state, providers.StartQuote(job))
    extended = answer(state, providers.ContinueQuote(start.quote, job, tuple(start.provider_ids), 0))
    assert (start.quote.could + start.quote.could_not, extended.could + extended.could_not) == (0, 1)


def test_the_secret_of_a_query_is_not_shown() -> None:
    assert "secret" not in repr(accounts.AuthenticateKey(KEY_ID, SECRET, 0))


def test_retention_progress_names_every_pass() -> None:
    state, _ = busy_state()
    assert set(answer(state, retention.GetRetentionProgress()).passes) == set(Pass)


@pytest.mark.rule("ENG-001")
async def test_a_durable_query_waits_for_the_journal_and_an_undurable_one_does_not() -> None:
    world = World()
    engine = await world.started()
    world.disk.faults.append(Fault.HANG)
    minting = asyncio.create_task(engine.submit(Mint(some_id(1), ALICE, Amount(10))))
    await asyncio.sleep(0)
    query = accounts.GetAccount(ALICE)
    durable = asyncio.create_task(engine.query_durable(query))
    for _ in range(30):
        await asyncio.sleep(0)
    early = engine.query_undurable(query)
    assert early is not None
    assert (early.available, durable.done()) == (10, False)
    world.disk.release.set()
    assert (await durable, (await minting).__class__) == (early, Accepted)
    await engine.stop()
