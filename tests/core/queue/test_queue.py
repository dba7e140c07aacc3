"""Admission: a receipt or nothing at all; the same request twice is one job; the fuller the queue, the stricter."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core import naive
from tests.core.blocks import SEAL, START_MS, job_of
from tests.core.commands import DEVELOPMENT, admitted, done, enqueue_command, funded, payload, refused, run, some_id
from tests.counts import counts

from holdfast.core import state_machine
from holdfast.core.base.canonical import canonical
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command, Decided, NeedsClaims
from holdfast.core.base.values import AccountId, Amount, Kind, TaskId, Tier
from holdfast.core.chain.messages import EvictFinalTxs
from holdfast.core.escrow.messages import Mint
from holdfast.core.escrow.model import AMOUNT_MAX, Account
from holdfast.core.job.model import JobState, earliest_read_height
from holdfast.core.policy import AdmissionPolicy, Policy
from holdfast.core.queue.decide import build_enqueue, in_flight_max
from holdfast.core.queue.messages import CancelJob, JobAdmitted, idempotency_key
from holdfast.core.state import State
from holdfast.core.state_digest import digest

ALICE, BOB = AccountId("alice"), AccountId("bob")
DAY_MS = 24 * 3_600_000
KEY = bytes(range(16))


def policy(**limits: int) -> Policy:
    return msgspec.structs.replace(DEVELOPMENT, admission=AdmissionPolicy(**limits))


def filled(jobs: int, told: Policy, owner: str = "bob") -> State:
    """So many jobs of one owner in the queue."""
    state = funded(10_000, told)
    for nonce in range(jobs):
        done(state, enqueue_command(nonce, owner, 1, policy=told))
    return state


# ------------------------------------------------------------------------------------------------ receipts


@pytest.mark.rule("JOB-001", "JOB-006")
@given(
    st.integers(0, 2**63 - 1),
    st.integers(1, 900),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=40),
    st.integers(0, 3),
)
@settings(max_examples=counts(40, 500))
def test_all_of_a_receipt_is_what_a_naive_reader_computes(nonce: int, fee: int, prompt: str, blocks: int) -> None:
    state, wanted = funded(), payload(prompt)
    for _ in range(blocks):
        done(state, SEAL, START_MS)
    event = admitted(state, enqueue_command(nonce, max_fee=fee, what=wanted), START_MS)
    raw = naive.cbor(wanted)
    tx = naive.h("holdfast.tx.v1", 1337, b"alice", nonce, naive.cbor({"max_fee": fee, "payload": wanted}))
    assert (event.tx_hash, event.request_hash) == (tx, naive.h("holdfast.request.v1", raw))
    assert event.id == naive.h("animica.cap.task_id.v1", 1337, blocks + 1, tx, b"alice", raw)
    assert event.priority == naive.priority(fee, len(raw), "FREE", START_MS, {})
    assert (event.height, event.enqueue_ms, event.payload.inline) == (blocks + 1, START_MS, raw)


@pytest.mark.rule("JOB-006", "ESC-001")
def test_admission_sets_the_fee_aside_and_opens_the_account_of_the_job() -> None:
    state = funded(100)
    job = admitted(state, enqueue_command(max_fee=60), START_MS)
    assert state.ledger.accounts[ALICE] == Account(ALICE, 40, 60, 0)
    assert (state.queue.depth, state.queue.in_flight) == (1, {ALICE: 1})
    kept = state.queue.jobs[job.id]
    assert (kept.state, kept.max_fee, kept.event) == (JobState.QUEUED, 60, state.last_event)


@pytest.mark.rule("RES-002")
def test_the_earliest_read_height_is_the_one_after_the_open_block() -> None:
    state = funded()
    for height in (1, 2, 3):
        done(state, enqueue_command(height), START_MS)
        assert earliest_read_height(state.queue.jobs[job_of(state)]) == height + 1
        done(state, SEAL, START_MS)


@pytest.mark.rule("TTL-001")
@pytest.mark.parametrize(
    ("kind", "ttl_ms", "lasts"),
    [("AI", None, DAY_MS), ("QUANTUM", None, DAY_MS // 12), ("AI", 1, 1), ("QUANTUM", 7, 7)],
)
def test_a_receipt_says_when_the_job_ends_by_itself(kind: str, ttl_ms: int | None, lasts: int) -> None:
    circuit = {"circuit": "OPENQASM 3;", "shots": 1, "width": 1, "depth": 1}
    what = {"kind": kind, "spec": payload()["spec"] if kind == "AI" else circuit}
    event = admitted(funded(), enqueue_command(what=what | ({} if ttl_ms is None else {"ttl_ms": ttl_ms})), START_MS)
    assert (event.kind, event.expires_ms) == (Kind(kind), START_MS + lasts)


@pytest.mark.rule("ENG-007", "JOB-006")
@pytest.mark.parametrize(("size", "is_inline"), [(4_095, True), (4_096, True), (4_097, False)])
def test_a_large_payload_is_beside_the_batch_and_not_in_it(size: int, is_inline: bool) -> None:
    what = payload("x" * (size - len(canonical(payload(""))) - 2))
    assert len(canonical(what)) == size
    decided = state_machine.decide(funded(), enqueue_command(what=what), START_MS)
    assert isinstance(decided, Decided)
    event = decided.events[0]
    assert isinstance(event, JobAdmitted)
    assert (event.payload.inline is not None) is is_inline
    assert [each.raw for each in decided.attachments] == ([] if is_inline else [canonical(what)])


# ------------------------------------------------------------------------------------------------ guards


@pytest.mark.rule("JOB-005")
@pytest.mark.parametrize(("size", "is_allowed"), [(199, True), (200, True), (201, False)])
def test_a_payload_may_have_so_many_bytes(size: int, is_allowed: bool) -> None:
    what = payload("x" * (size - len(canonical(payload(""))) - 1))
    assert len(canonical(what)) == size
    told = build_enqueue(policy(payload_bytes_max=200), ALICE, Tier.FREE, what, 1, 1)
    assert isinstance(told, Refused) is not is_allowed
    if isinstance(told, Refused):
        assert (told.rule, told.name) == ("JOB-005", "TooLarge")


@pytest.mark.rule("JOB-005")
@pytest.mark.parametrize(("depth", "is_allowed"), [(9, True), (10, False)])
def test_a_full_queue_takes_nothing(depth: int, is_allowed: bool) -> None:
    told = policy(queue_depth_max=10, back_pressure_ppm=1_000_000)
    state = filled(depth, told)
    if is_allowed:
        done(state, enqueue_command(99, policy=told), START_MS)
    else:
        no = refused(state, enqueue_command(99, policy=told))
        assert (no.rule, no.name, no.message) == ("JOB-005", "QueueFull", "the queue is full: 10 jobs")


@pytest.mark.rule("JOB-005")
@pytest.mark.parametrize(("mine", "is_allowed"), [(2, True), (3, False)])
def test_a_requester_has_so_many_jobs_in_flight_and_others_are_not_held_up(mine: int, is_allowed: bool) -> None:
    told = policy(in_flight_per_requester_max=3)
    state = filled(mine, told, "alice")
    if is_allowed:
        done(state, enqueue_command(99, policy=told), START_MS)
    else:
        no = refused(state, enqueue_command(99, policy=told))
        assert (no.rule, no.name, no.message) == ("JOB-005", "QueueFull", "alice has 3 jobs in flight, at most 3")
    done(state, enqueue_command(99, "bob", policy=told), START_MS)
    done(state, CancelJob(TaskId(next(iter(state.queue.jobs)))), START_MS)
    done(state, enqueue_command(98, policy=told), START_MS)


@pytest.mark.rule("JOB-005")
@pytest.mark.parametrize(
    ("depth", "most"),
    [(0, 10), (79, 10), (80, 10), (81, 9), (82, 9), (89, 5), (90, 5), (91, 4), (98, 1), (99, 1), (100, 1)],
)
def test_from_four_fifths_of_the_depth_on_fewer_and_fewer_jobs_are_taken_of_one_requester(
    depth: int, most: int
) -> None:
    told = AdmissionPolicy(queue_depth_max=100, in_flight_per_requester_max=10)
    assert in_flight_max(told, depth) == most


@pytest.mark.rule("JOB-005")
@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 1_000_000))
@settings(max_examples=counts(40, 1_000))
def test_back_pressure_only_grows_with_the_depth_and_never_shuts_anybody_out(full: int, most: int, ppm: int) -> None:
    told = AdmissionPolicy(queue_depth_max=full, in_flight_per_requester_max=most, back_pressure_ppm=ppm)
    allowed = [in_flight_max(told, depth) for depth in range(full)]
    assert allowed == sorted(allowed, reverse=True)
    assert allowed[0] == most
    assert allowed[-1] >= 1
    assert [n for depth, n in enumerate(allowed) if depth * 1_000_000 < full * ppm - 1_000_000 and n != most] == []


@pytest.mark.rule("JOB-005")
def test_under_back_pressure_who_has_much_waits_and_who_has_little_comes_in() -> None:
    told = policy(queue_depth_max=10, in_flight_per_requester_max=6)
    state = funded(10_000, told)
    for nonce in range(9):
        done(state, enqueue_command(nonce, "bob" if nonce < 6 else "alice", 1, policy=told))
    done(state, Mint(some_id(80), AccountId("dora"), Amount(5)))
    no = refused(state, enqueue_command(99, "alice", 1, policy=told))
    assert (no.name, no.message) == ("BackPressure", "alice has 3 jobs in flight, with 9 in the queue at most 3")
    done(state, enqueue_command(99, "dora", 1, policy=told))


@pytest.mark.rule("JOB-006", "ESC-001")
@pytest.mark.parametrize(("fee", "is_allowed"), [(99, True), (100, True), (101, False)])
def test_a_job_needs_its_whole_fee_to_be_available(fee: int, is_allowed: bool) -> None:
    state = funded(100)
    if is_allowed:
        done(state, enqueue_command(max_fee=fee), START_MS)
    else:
        no = refused(state, enqueue_command(max_fee=fee))
        assert (no.rule, no.name) == ("ESC-001", "InsufficientFunds")
    assert refused(state, enqueue_command(7, "nobody", 1)).name == "InsufficientFunds"


@pytest.mark.rule("JOB-001")
@pytest.mark.parametrize(
    ("fee", "nonce", "caller", "says"),
    [
        (0, 1, "alice", "max_fee"),
        (-1, 1, "alice", "max_fee"),
        (AMOUNT_MAX + 1, 1, "alice", "max_fee"),
        (1, -1, "alice", "nonce"),
        (1, 2**63, "alice", "nonce"),
        (1, 1, "", "caller"),
        (1, 1, "ä" * 33, "caller"),
    ],
)
def test_terms_out_of_range_are_named(fee: int, nonce: int, caller: str, says: str) -> None:
    told = build_enqueue(DEVELOPMENT, AccountId(caller), Tier.FREE, payload(), fee, nonce)
    assert isinstance(told, Refused)
    assert (told.rule, told.name) == ("ESC-001" if says == "max_fee" else "JOB-001", "InvalidParams")
    assert told.message.startswith(says)


@pytest.mark.rule("JOB-001")
def test_terms_at_their_bounds_are_taken() -> None:
    for fee, nonce, caller in ((1, 0, "a"), (AMOUNT_MAX, 2**63 - 1, "ä" * 32)):
        assert not isinstance(build_enqueue(DEVELOPMENT, AccountId(caller), Tier.FREE, payload(), fee, nonce), Refused)


# ------------------------------------------------------------------------------------------------ the same again


@pytest.mark.rule("JOB-002")
def test_the_same_transaction_again_is_the_first_job_whatever_the_height_and_how_it_ended() -> None:
    state = funded()
    job, number = admitted(state, enqueue_command(5), START_MS), state.last_event
    done(state, SEAL, START_MS)
    assert state_machine.decide(state, enqueue_command(5), START_MS + 1) == Decided((), repeat_of=number)
    done(state, CancelJob(job.id), START_MS)
    assert state_machine.decide(state, enqueue_command(5), START_MS + 1) == Decided((), repeat_of=number)
    for _ in range(DEVELOPMENT.chain.finality_depth + 1):
        done(state, SEAL, START_MS)
    done(state, EvictFinalTxs(state.last_event), START_MS)
    assert job.id not in state.queue.jobs
    assert state_machine.decide(state, enqueue_command(5), START_MS + 1) == Decided((), repeat_of=number)


@pytest.mark.rule("JOB-002")
@pytest.mark.parametrize(
    "other",
    [
        enqueue_command(6),
        enqueue_command(5, "bob"),
        enqueue_command(5, max_fee=11),
        enqueue_command(5, what=payload("other")),
    ],
    ids=["nonce", "caller", "fee", "payload"],
)
def test_another_transaction_is_another_job(other: Command) -> None:
    state = funded()
    first = admitted(state, enqueue_command(5), START_MS)
    assert admitted(state, other, START_MS).id != first.id
    assert state.queue.depth == 2


@pytest.mark.rule("JOB-002")
@pytest.mark.parametrize(
    ("later_ms", "is_repeat"), [(0, True), (DAY_MS - 1, True), (DAY_MS, False), (DAY_MS + 1, False)]
)
def test_an_idempotency_key_counts_for_a_day_to_the_millisecond(later_ms: int, is_repeat: bool) -> None:
    state = funded()
    done(state, enqueue_command(1, idempotency=KEY), START_MS)
    number = state.last_event
    again = state_machine.decide(state, enqueue_command(2, idempotency=KEY), START_MS + later_ms)
    assert isinstance(again, Decided)
    assert (again.repeat_of == number and not again.events) is is_repeat
    if not is_repeat:
        done(state, enqueue_command(2, idempotency=KEY), START_MS + later_ms)
        assert state.claims.event_of(idempotency_key(KEY)) == state.last_event


@pytest.mark.rule("JOB-002")
@pytest.mark.parametrize("other", [{"max_fee": 11}, {"what": payload("other")}, {"caller": "bob"}])
def test_an_idempotency_key_for_another_request_is_refused(other: dict[str, object]) -> None:
    state = funded()
    done(state, enqueue_command(1, idempotency=KEY), START_MS)
    no = refused(state, enqueue_command(2, idempotency=KEY, **other), START_MS)  # type: ignore[arg-type]
    assert (no.rule, no.name) == ("JOB-002", "IdReused")


@pytest.mark.rule("JOB-002")
def test_two_idempotency_keys_and_none_at_all_are_jobs_of_their_own() -> None:
    state = funded()
    for nonce, key in enumerate((KEY, KEY[::-1], b"", b"")):
        admitted(state, enqueue_command(nonce, idempotency=key), START_MS)
    assert state.queue.depth == 4
    assert [key[1:] for key in state.claims.recent if key[:1] == b"i"] == [KEY, KEY[::-1]]


@pytest.mark.rule("JOB-002", "ENG-005")
@pytest.mark.parametrize(("later_ms", "is_repeat"), [(DAY_MS - 1, True), (DAY_MS, False)])
def test_an_idempotency_key_that_only_the_tables_know_counts_as_long(later_ms: int, is_repeat: bool) -> None:
    state = funded()
    done(state, enqueue_command(1, idempotency=KEY), START_MS)
    number = state.last_event
    stored = dict(state.claims.drain_recent())
    state.claims.may_be_stored = lambda key: key in stored
    command = enqueue_command(2, idempotency=KEY)
    asked = state_machine.decide_run(state, [command], START_MS + later_ms)
    assert asked == [NeedsClaims((idempotency_key(KEY),))]
    state.claims.loaded = {idempotency_key(KEY): stored[idempotency_key(KEY)]}
    again = state_machine.decide(state, command, START_MS + later_ms)
    assert isinstance(again, Decided)
    assert (again.repeat_of == number) is is_repeat
    other = state_machine.decide(state, enqueue_command(3, max_fee=11, idempotency=KEY), START_MS + later_ms)
    assert isinstance(other, Refused) is is_repeat
    if not is_repeat:  # the new claim takes the place of the expired one
        done(state, command, START_MS + later_ms)
        assert state.claims.event_of(idempotency_key(KEY)) == state.last_event


@pytest.mark.rule("JOB-005")
@given(st.data())
@settings(max_examples=counts(30, 400))
def test_a_refused_enqueue_has_no_effect_at_all(data: st.DataObject) -> None:
    told = policy(queue_depth_max=4, in_flight_per_requester_max=3)
    state = funded(12, told)
    for _ in range(12):
        key = data.draw(st.sampled_from([b"", KEY]))
        owner, fee = data.draw(st.sampled_from(["alice", "bob"])), data.draw(st.integers(1, 8))
        before = digest(state)
        claims = (len(state.claims.recent), {t: len(r) for t, r in state.touched.items()})
        outcome = run(state, enqueue_command(data.draw(st.integers(0, 20)), owner, fee, key, policy=told), START_MS)
        if isinstance(outcome, Refused) or not outcome:
            assert digest(state) == before
            assert claims == (
                len(state.claims.recent),
                {t: len(r) for t, r in state.touched.items()},
            )
