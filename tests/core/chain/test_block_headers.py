"""Headers: what anybody can compute again, and what a header that does not follow the one below gives away."""

from __future__ import annotations

from collections.abc import Callable

import cbor2
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core import naive
from tests.core.blocks import (
    PROPOSER,
    START_MS,
    ChainRun,
    Step,
    changed,
    final_after,
    job_of,
    rich,
    sealed,
    sign,
    step_sequences,
    verify,
)
from tests.core.commands import done, enqueue_command, run
from tests.counts import counts

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import ChainId, Height, Network
from holdfast.core.chain.header import Header, SignedHeader, beacon_after, genesis_signed, header_hash, why_not_next
from holdfast.core.chain.messages import BlockSealed, RollBackBlocks, SealBlock
from holdfast.core.chain.model import add_results
from holdfast.core.queue.messages import CancelJob
from holdfast.core.state import State


@pytest.mark.rule("CHN-001")
@given(step_sequences, st.integers(0, 5))
@settings(max_examples=counts(60, 1_000))
def test_every_header_is_what_a_naive_reader_of_the_rules_computes(history: list[Step], depth: int) -> None:
    life = ChainRun(final_after(depth))
    for step in history:
        life.run_step(step)  # in it, the naive chain computes the hash of each block that is sealed
        assert life.state.chain.head.hash == life.naive.blocks[-1].hash
    for block in life.naive.blocks[1:]:
        assert cbor2.dumps(block.header, canonical=True) == naive.cbor(block.header)


@pytest.mark.rule("CHN-001")
def test_a_header_names_the_events_it_covers_and_the_roots_of_what_is_in_it() -> None:
    state = done(rich(), enqueue_command(1), START_MS)
    first = sealed(state).header
    assert (first.height, first.first_event, first.last_event, first.tx_count) == (1, 1, 2, 1)
    done(state, CancelJob(job_of(state)), START_MS)
    second = sealed(state, START_MS + 5).header
    assert (second.height, second.first_event, second.last_event, second.tx_count) == (2, 3, 4, 1)
    assert second.parent == header_hash(first)
    assert (second.time_ms, second.proposer) == (START_MS + 5, PROPOSER)


@pytest.mark.rule("CHN-001")
def test_a_beacon_is_the_hash_of_the_signature_below_and_so_unknown_before_it() -> None:
    state = rich()
    genesis = genesis_signed(ChainId(state.policy.chain_id), Network.DEVELOPMENT)
    assert sealed(state).header.beacon == beacon_after(genesis.signature) == naive.h("holdfast.beacon.v1", genesis.hash)
    signature = state.chain.head.signature
    assert signature == sign(state.chain.head.hash)
    assert sealed(state).header.beacon == naive.h("holdfast.beacon.v1", signature)


def two() -> tuple[SignedHeader, SignedHeader]:
    """Two blocks, one on the other, with something in both."""
    state = done(rich(), enqueue_command(1), START_MS)
    first = sealed(state)
    done(state, enqueue_command(2), START_MS)
    return first, sealed(state, START_MS + 7)


@pytest.mark.rule("CHN-001")
@pytest.mark.parametrize("name", Header.__struct_fields__)
def test_no_field_of_a_header_can_be_changed_under_its_hash(name: str) -> None:
    first, second = two()
    assert why_not_next(first, second, verify) is None
    value = changed(getattr(second.header, name))
    other = msgspec.structs.replace(second, header=msgspec.structs.replace(second.header, **{name: value}))
    said = {
        "chain_id": "is of chain 1338, not of 1337",
        "height": "does not follow height 1",
        "parent": "names another parent",
    }
    assert said.get(name, "does not match its hash") in (why_not_next(first, other, verify) or "")


FORGED: list[tuple[str, Callable[[Header], object], str]] = [
    ("chain_id", lambda header: header.chain_id + 1, "is of chain 1338"),
    ("height", lambda header: header.height + 1, "does not follow height 1"),
    ("height", lambda header: header.height - 1, "does not follow height 1"),
    ("parent", lambda header: changed(header.parent), "names another parent"),
    ("time_ms", lambda _: START_MS - 1, "is earlier than its parent"),
    ("proposer", lambda header: changed(header.proposer), "is not signed by its proposer"),
    ("beacon", lambda header: changed(header.beacon), "has a beacon"),
    ("first_event", lambda header: header.first_event - 1, "does not begin after event 2"),
    ("first_event", lambda header: header.first_event + 1, "does not begin after event 2"),
    ("last_event", lambda header: header.first_event - 2, "ends before it begins"),
    ("result_count", lambda _: 1, "does not add its results to the log"),
    ("log_size", lambda _: 1, "does not add its results to the log"),
]


@pytest.mark.rule("CHN-001")
@pytest.mark.parametrize(("name", "lie", "says"), FORGED)
def test_a_header_that_its_proposer_signs_must_still_follow_the_one_below(
    name: str, lie: Callable[[Header], object], says: str
) -> None:
    first, second = two()
    header = msgspec.structs.replace(second.header, **{name: lie(second.header)})
    forged = SignedHeader(header, header_hash(header), sign(header_hash(header)))
    assert says in (why_not_next(first, forged, verify) or "")


@pytest.mark.rule("CHN-001")
def test_a_block_may_be_of_its_parents_millisecond_and_hold_nothing() -> None:
    first, second = two()
    same = msgspec.structs.replace(
        second.header, time_ms=first.header.time_ms, last_event=second.header.first_event - 1
    )
    assert why_not_next(first, SignedHeader(same, header_hash(same), sign(header_hash(same))), verify) is None


@pytest.mark.rule("CHN-001")
def test_a_signature_of_somebody_else_is_none() -> None:
    first, second = two()
    other = msgspec.structs.replace(second, signature=changed(second.signature))
    assert "is not signed by its proposer" in (why_not_next(first, other, verify) or "")


@pytest.mark.rule("CHN-001")
@pytest.mark.parametrize("chain_id", [0, 1337, 2**64 - 1])
def test_block_one_follows_the_genesis_of_its_own_chain_alone(chain_id: int) -> None:
    state = State(msgspec.structs.replace(final_after(3), chain_id=chain_id))
    block = sealed(state)
    assert why_not_next(genesis_signed(ChainId(chain_id), Network.DEVELOPMENT), block, verify) is None
    assert why_not_next(genesis_signed(ChainId(chain_id ^ 1), Network.DEVELOPMENT), block, verify) is not None


@pytest.mark.rule("RES-008")
def test_the_log_holds_the_leaves_of_all_results_and_a_block_those_of_its_own() -> None:
    state, leaves = rich(), [b"one", b"two", b"three"]
    add_results(state, [leaves[0]])
    assert sealed(state).header.log_root == naive.merkle_root(leaves[:1])
    add_results(state, [leaves[1]])
    add_results(state, [leaves[2]])
    header = sealed(state).header
    assert (header.result_count, header.result_root) == (2, naive.merkle_root(leaves[1:]))
    assert (header.log_size, header.log_root) == (3, naive.merkle_root(leaves))
    done(state, RollBackBlocks(Height(1)), START_MS)
    assert sealed(state).header.log_root == naive.merkle_root(leaves[:1])  # results come with their proofs again


@pytest.mark.rule("CHN-001")
def test_a_seal_asks_for_a_signature_over_the_blocks_name_alone() -> None:
    shown: list[bytes] = []

    def listening(message: bytes) -> bytes:
        shown.append(message)
        return sign(message)

    state = rich()
    outcome = run(state, SealBlock(PROPOSER, listening), START_MS)
    assert not isinstance(outcome, Refused)
    assert shown == [state.chain.head.hash]
    assert isinstance(outcome[0], BlockSealed)
