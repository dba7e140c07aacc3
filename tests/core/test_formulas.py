"""Ids, keys, seeds and delays: each is the formula of its rule, compared with a naive reading of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core import naive

from holdfast.core import job, lease, match, proof, result
from holdfast.core.base.values import ChainId, Height, Kind, LeaseId, ProviderId, Seed, TaskId, Tier
from holdfast.core.job.ids import enqueue_tx_hash
from holdfast.core.policy import PriorityPolicy, RetryPolicy
from holdfast.core.queue import priority, retry

U64 = st.integers(0, 2**64 - 1)
IDS = st.binary(max_size=40)
PAYLOADS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
RETRY = RetryPolicy()

# ------------------------------------------------------------------------------------------------ ids


@pytest.mark.rule("JOB-001")
@given(U64, U64, IDS, IDS, PAYLOADS)
def test_a_task_id_hashes_chain_height_transaction_caller_and_payload(
    chain_id: int, height: int, tx_hash: bytes, caller: bytes, payload: object
) -> None:
    expected = naive.h("animica.cap.task_id.v1", chain_id, height, tx_hash, caller, naive.cbor(payload))
    assert job.task_id(ChainId(chain_id), Height(height), tx_hash, caller, payload) == expected


@pytest.mark.rule("JOB-001")
@given(U64, IDS, U64, PAYLOADS)
def test_a_call_over_rpc_has_a_transaction_hash_of_its_own(
    chain_id: int, caller: bytes, nonce: int, call: object
) -> None:
    expected = naive.h("holdfast.tx.v1", chain_id, caller, nonce, naive.cbor(call))
    assert job.tx_hash(ChainId(chain_id), caller, nonce, call) == expected


@pytest.mark.rule("JOB-001")
@given(U64, IDS, U64, U64, PAYLOADS, st.just(0) | U64)
def test_the_hash_of_an_enqueue_is_that_of_its_call_made_of_bytes(
    chain_id: int, caller: bytes, nonce: int, max_fee: int, payload: object, not_before_ms: int
) -> None:
    call = {"max_fee": max_fee, "payload": payload} | ({"not_before_ms": not_before_ms} if not_before_ms else {})
    whole = job.tx_hash(ChainId(chain_id), caller, nonce, call)
    raw = naive.cbor(payload)
    assert enqueue_tx_hash(ChainId(chain_id), caller, nonce, max_fee, raw, not_before_ms) == whole


@pytest.mark.rule("LEA-001")
@given(IDS, IDS, U64, IDS)
def test_a_lease_id_hashes_job_provider_attempt_and_seed(
    job_id: bytes, provider: bytes, attempt: int, seed: bytes
) -> None:
    expected = naive.h("AICF|lease", job_id, provider, attempt, seed)
    assert lease.lease_id(TaskId(job_id), ProviderId(provider), attempt, Seed(seed)) == expected


@pytest.mark.rule("LEA-001")
def test_the_same_provider_never_holds_the_same_job_under_the_same_id_twice() -> None:
    ids: set[LeaseId] = {lease.lease_id(TaskId(b"j"), ProviderId(b"p"), attempt, Seed(b"s")) for attempt in range(100)}
    assert len(ids) == 100


@pytest.mark.rule("PRF-001")
@given(st.sampled_from(proof.ProofType), U64, PAYLOADS)
def test_a_nullifier_hashes_type_window_and_body(type: proof.ProofType, window: int, body: object) -> None:
    types = {"AI": 1, "QUANTUM": 2, "COMPUTE": 3}
    expected = naive.h("animica.proof.nullifier.v1", types[type.name], window, naive.cbor(body))
    assert proof.nullifier(type, window, body) == expected


@pytest.mark.rule("PRF-001")
@pytest.mark.parametrize(("height", "window"), [(0, 0), (2047, 0), (2048, 1), (4095, 1), (4096, 2)])
def test_a_window_ends_after_so_many_heights(height: int, window: int) -> None:
    assert proof.window_of(Height(height), 2048) == window


@pytest.mark.rule("RES-004")
@given(st.binary(max_size=300))
def test_a_result_is_known_by_the_hash_of_its_bytes(output: bytes) -> None:
    assert result.result_digest(output) == naive.h("animica.cap.result.v1", output)


# ------------------------------------------------------------------------------------------------ priority


@pytest.mark.rule("PRI-001", "PRI-002")
@given(U64, U64, st.sampled_from(Tier), U64, st.tuples(*[U64] * 4), st.tuples(*[st.integers(1, 2**64 - 1)] * 3))
def test_a_key_is_exact_at_any_size_of_its_numbers(
    max_fee: int,
    size_bytes: int,
    tier: Tier,
    enqueue_ts_ms: int,
    weights: tuple[int, ...],
    references: tuple[int, ...],
) -> None:
    names = ("w_fee", "w_age", "w_size", "w_tier", "fee_ref", "age_ref_ms", "size_ref")
    knobs = dict(zip(names, weights + references, strict=True))
    key = priority.sort_priority(max_fee, size_bytes, tier, enqueue_ts_ms, PriorityPolicy(**knobs))
    assert key == naive.priority(max_fee, size_bytes, tier.value, enqueue_ts_ms, knobs)


def key_of(max_fee: int = 500_000, size_bytes: int = 1_000, tier: Tier = Tier.FREE, enqueue_ts_ms: int = 0) -> int:
    return priority.sort_priority(max_fee, size_bytes, tier, enqueue_ts_ms, PriorityPolicy())


@pytest.mark.rule("PRI-001")
def test_a_fee_counts_up_to_its_reference_and_no_further() -> None:
    assert key_of(max_fee=999_999) < key_of(max_fee=1_000_000) == key_of(max_fee=1_000_001) == key_of(max_fee=2**64 - 1)


@pytest.mark.rule("PRI-001")
def test_smaller_jobs_and_higher_tiers_go_first() -> None:
    assert key_of(size_bytes=1_000) > key_of(size_bytes=2_000)
    assert key_of(tier=Tier.FREE) < key_of(tier=Tier.PRO) < key_of(tier=Tier.PREMIUM)


@pytest.mark.rule("PRI-001")
def test_a_job_that_waits_long_enough_passes_any_other() -> None:
    best_newcomer = key_of(max_fee=2**64 - 1, size_bytes=0, tier=Tier.PREMIUM, enqueue_ts_ms=3 * 3_600_000)
    assert key_of(max_fee=0, size_bytes=2**64 - 1) > best_newcomer


@pytest.mark.rule("PRI-002")
@given(*[st.tuples(U64, U64, st.sampled_from(Tier), st.integers(0, 10**13))] * 2)
def test_two_jobs_are_in_the_order_of_their_scores_at_any_time(
    one: tuple[int, int, Tier, int], other: tuple[int, int, Tier, int]
) -> None:
    def score(job: tuple[int, int, Tier, int], now_ms: int) -> int:
        """PRI-001 as it reads, with the age measured from now."""
        fee, size, tier, born_ms = job
        return key_of(fee, size, tier) + 250 * (now_ms * 10**9 // 3_600_000 - born_ms * 10**9 // 3_600_000)

    for now_ms in (10**13, 10**13 + 1, 10**15):
        assert (key_of(*one) < key_of(*other)) == (score(one, now_ms) < score(other, now_ms))


# ------------------------------------------------------------------------------------------------ retries


@pytest.mark.rule("RTY-002")
@given(st.sampled_from(Kind), IDS, st.integers(0, 12) | U64)
def test_a_delay_is_the_formula_and_within_a_tenth(kind: Kind, job_id: bytes, failure: int) -> None:
    delay = retry.delay_ms(kind, job_id, failure, RETRY)
    assert delay == naive.backoff(kind.value, failure, naive.jitter(job_id, failure))
    d = min(900_000, {Kind.AI: 5_000, Kind.QUANTUM: 2_000, Kind.COMPUTE: 5_000}[kind] * 2 ** min(failure, 20))
    assert d * 9 // 10 <= delay <= d * 11 // 10


@pytest.mark.rule("RTY-002")
@pytest.mark.parametrize(
    ("kind", "failure", "d"),
    [
        (Kind.AI, 0, 5_000),
        (Kind.AI, 7, 640_000),
        (Kind.AI, 8, 900_000),
        (Kind.AI, 2**64 - 1, 900_000),
        (Kind.QUANTUM, 0, 2_000),
        (Kind.QUANTUM, 8, 512_000),
        (Kind.QUANTUM, 9, 900_000),
    ],
)
@pytest.mark.parametrize(
    ("u", "moved"),
    [
        (0, lambda d: -d // 10),
        (2**63 - 1, lambda d: -1),
        (2**63, lambda d: 0),
        (2**64 - 1, lambda d: d // 10 - 1),
    ],
    ids=["shortest", "just below the middle", "just above the middle", "longest"],
)
def test_the_dice_move_a_delay_by_at_most_a_tenth_either_way(
    kind: Kind, failure: int, d: int, u: int, moved: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "H", lambda *_: u.to_bytes(8, "big") + bytes(24))
    assert retry.delay_ms(kind, b"job", failure, RETRY) == d + moved(d)  # type: ignore[operator]


@pytest.mark.rule("RTY-002")
@pytest.mark.parametrize(
    ("factor", "failure", "d"), [(1, 9, 5_000), (3, 2, 45_000), (10, 2, 500_000), (100, 99, 900_000)]
)
def test_policy_says_how_much_longer_each_wait_is(
    factor: int, failure: int, d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "H", lambda *_: (2**63).to_bytes(8, "big") + bytes(24))
    assert retry.delay_ms(Kind.AI, b"job", failure, RetryPolicy(backoff_factor=factor)) == d


@pytest.mark.rule("RTY-002")
def test_the_dice_are_read_at_the_middle_of_their_step(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first u at which an AI job's first delay grows by one more millisecond, where 2u alone would not reach it yet.
    steps = [(-(-more * 2**64 // 500), more) for more in range(1, 500)]
    edges = [((2**64 + least - 1) // 2, more) for least, more in steps if least % 2 == 1]
    assert edges
    for u, more in edges:
        monkeypatch.setattr(retry, "H", lambda *_, u=u: u.to_bytes(8, "big") + bytes(24))
        assert retry.delay_ms(Kind.AI, b"job", 0, RETRY) == 5_000 + more


# ------------------------------------------------------------------------------------------------ matching


@pytest.mark.rule("MAT-001")
@given(U64, U64, U64, IDS)
def test_a_seed_hashes_chain_epoch_height_and_beacon(chain_id: int, epoch: int, height: int, beacon: bytes) -> None:
    expected = naive.h("AICF|match", chain_id, epoch, height, beacon)
    assert match.seed(ChainId(chain_id), epoch, Height(height), beacon) == expected


@pytest.mark.rule("MAT-001")
@pytest.mark.parametrize(("height", "epoch"), [(0, 0), (1799, 0), (1800, 1), (3599, 1), (3600, 2)])
def test_an_epoch_ends_after_so_many_heights(height: int, epoch: int) -> None:
    assert match.epoch_id(Height(height), 1800) == epoch


@pytest.mark.rule("MAT-003")
@given(IDS, st.lists(IDS, max_size=60))
def test_a_shuffle_is_the_one_a_naive_reading_gives(seed: bytes, providers: list[bytes]) -> None:
    ours = match.shuffle(Seed(seed), [ProviderId(provider) for provider in providers])
    assert ours == naive.shuffle(providers, naive.words(seed))


@pytest.mark.rule("MAT-003")
def test_a_shuffle_of_ten_thousand_is_the_naive_one_too() -> None:
    providers = [naive.h("provider", index) for index in range(10_000)]
    ours = match.shuffle(Seed(b"seed"), [ProviderId(provider) for provider in providers])
    assert ours == naive.shuffle(providers, naive.words(b"seed"))


@pytest.mark.rule("MAT-003")
@given(IDS, st.lists(IDS, max_size=20), st.randoms(use_true_random=False))
def test_a_shuffle_does_not_depend_on_the_order_it_is_given(
    seed: bytes, providers: list[bytes], chance: object
) -> None:
    before = [ProviderId(provider) for provider in providers]
    after = list(before)
    chance.shuffle(after)  # type: ignore[attr-defined]
    assert match.shuffle(Seed(seed), before) == match.shuffle(Seed(seed), after)
    assert before == providers


@pytest.mark.rule("MAT-003")
@given(IDS, st.lists(st.integers(1, 2**64), max_size=20))
def test_draws_take_the_words_of_the_stream_in_order(seed: bytes, sizes: list[int]) -> None:
    draw, stream = match.draws(Seed(seed)), naive.words(seed)
    assert [draw(n) for n in sizes] == [naive.draw(n, stream) for n in sizes]


@pytest.mark.rule("MAT-003")
def test_a_word_that_would_favour_low_numbers_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    # 2⁶⁴ mod 3 is 1: of all words only the last one must not count for n = 3; for n = 2 every word counts.
    stream = [2**64 - 1, 2**64 - 1, 2**64 - 2, 2**64 - 1, 7]

    def words(_: Seed) -> Iterator[int]:
        return iter(stream)

    monkeypatch.setattr(match.seed_shuffle, "_words", words)
    draw = match.draws(Seed(b""))
    assert [draw(3), draw(2), draw(3)] == [(2**64 - 2) % 3, 1, 1]
    three = [ProviderId(b"a"), ProviderId(b"b"), ProviderId(b"c")]
    assert match.shuffle(Seed(b""), three) == naive.shuffle(list(three), iter(stream))


@pytest.mark.rule("MAT-003")
def test_every_order_of_three_comes_up_about_as_often_as_any_other() -> None:
    three = [ProviderId(b"a"), ProviderId(b"b"), ProviderId(b"c")]
    orders = [tuple(match.shuffle(Seed(bytes([n, m])), three)) for n in range(60) for m in range(100)]
    assert len(set(orders)) == 6
    assert all(850 < orders.count(order) < 1150 for order in set(orders))


@pytest.mark.rule("MAT-003")
def test_the_stream_is_four_words_of_each_hash() -> None:
    hashes = b"".join(naive.h("AICF|match", b"seed", counter) for counter in range(3))
    ours = b"".join(word.to_bytes(8, "big") for word in islice(match.seed_shuffle._words(Seed(b"seed")), 12))
    assert ours == hashes
