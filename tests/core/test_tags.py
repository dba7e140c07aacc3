"""A change of domain tags: both versions live through a grace window, new ids under the newest."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.books import DEVELOPMENT
from tests.core.ways import ALICE, Way

from holdfast.core.canon import live_versions
from holdfast.core.chain.acts import RollBack
from holdfast.core.job.ids import version_of
from holdfast.core.policy import ChainPolicy
from holdfast.core.proof.acts import Judge, nullifier_key
from holdfast.core.proof.envelope import packed_nullifier, unpack
from holdfast.core.queue.decide import prepare
from holdfast.core.refusal import Refused
from holdfast.core.state import State
from holdfast.core.values import ChainId, Height, TaskId, Tier

pytestmark = pytest.mark.rule("CAN-003")
MOVING = msgspec.structs.replace(
    DEVELOPMENT, chain=ChainPolicy(finality_depth=12, tags_v2_height=4, tags_grace_blocks=3)
)


def moving() -> Way:
    way = Way(State(MOVING))
    way.funded()
    way.provider()
    return way


def version(way: Way, job: TaskId) -> int:
    found = way.state.queue.jobs[job]
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "units": 2}
    return version_of(job, ChainId(1337), found.height, found.tx_hash, found.caller.encode(), payload)


@pytest.mark.parametrize(("height", "live"), [(1, (1,)), (3, (1,)), (4, (1, 2)), (6, (1, 2)), (7, (2,)), (1_000, (2,))])
def test_both_versions_are_live_exactly_through_the_grace_window(height: int, live: tuple[int, ...]) -> None:
    assert live_versions(height, 4, 3) == live
    assert live_versions(height, 0, 3) == (1,)  # nobody has said when


def test_ids_are_made_under_the_newest_tag_that_is_live_at_their_height() -> None:
    way = moving()
    for height, expected in ((1, 1), (3, 1), (4, 2), (6, 2), (7, 2)):
        way.seal(height - way.state.open_height)
        assert version(way, way.enqueue(nonce=height)) == expected


def test_a_retry_over_the_boundary_is_still_the_same_job() -> None:
    way = moving()
    first = way.enqueue(nonce=1)
    way.seal(5)
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "units": 2}
    again = prepare(way.state.policy, ALICE, Tier.FREE, payload, 100, 1)
    assert not isinstance(again, Refused)
    assert way.do(again) == ()
    assert list(way.state.queue.jobs) == [first]


@pytest.mark.rule("PRF-001", "RES-001")
@pytest.mark.parametrize(("height", "is_recognised"), [(3, True), (4, True), (6, True), (7, False)])
def test_a_nullifier_under_the_old_tag_is_recognised_until_the_window_ends(height: int, is_recognised: bool) -> None:
    """The test claims the old nullifier of a proof by hand; the same proof then comes again."""
    way = moving()
    job = way.enqueue()
    way.match()
    way.submit(job)
    envelope = unpack(way.state.submissions[way.lease_of(job).id])
    old = packed_nullifier(envelope.type, 0, envelope.body, 1)
    way.state.claims.add(nullifier_key(old), way.state.last_event, way.events[-1])
    way.seal(height - way.state.open_height)
    outcome = way.ask(Judge(way.lease_of(job).id, True))
    assert isinstance(outcome, Refused) == is_recognised
    if isinstance(outcome, Refused):
        assert outcome.name == "NullifierReuse"
    else:
        assert way.state.results[job].proof_nullifier == packed_nullifier(envelope.type, 0, envelope.body, 2)


def test_a_job_of_the_old_tag_is_done_and_used_after_the_change_also_through_a_reorg() -> None:
    way = moving()
    job = way.enqueue()
    way.seal(4)
    way.match()
    way.complete(job)
    nullifier = way.state.results[job].proof_nullifier
    way.seal()
    way.do(RollBack(Height(2)))  # below the change: what was made stays as it was made
    assert (version(way, job), way.state.results[job].proof_nullifier) == (1, nullifier)
    assert version(way, way.enqueue(nonce=2)) == 1
    way.seal(6)
    assert isinstance(way.consume(job), tuple)
