"""A change of domain tags: both versions live through a grace window, new ids under the newest."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.commands import DEVELOPMENT
from tests.core.core_driver import ALICE, CoreDriver

from holdfast.core import state_machine
from holdfast.core.base.canonical import live_versions
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import NeedsClaims
from holdfast.core.base.values import ChainId, Height, TaskId, Tier
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.job.ids import version_of
from holdfast.core.policy import ChainPolicy
from holdfast.core.proof.envelope import packed_nullifier, unpack
from holdfast.core.proof.messages import RecordVerdict, nullifier_key
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.state import State

pytestmark = pytest.mark.rule("CAN-003")
MOVING = msgspec.structs.replace(
    DEVELOPMENT, chain=ChainPolicy(finality_depth=12, tags_v2_height=4, tags_grace_blocks=3)
)


def moving() -> CoreDriver:
    core = CoreDriver(State(MOVING))
    core.funded()
    core.provider()
    return core


def version(core: CoreDriver, job: TaskId) -> int:
    found = core.state.queue.jobs[job]
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "units": 2}
    return version_of(job, ChainId(1337), found.height, found.tx_hash, found.caller.encode(), payload)


@pytest.mark.parametrize(("height", "live"), [(1, (1,)), (3, (1,)), (4, (1, 2)), (6, (1, 2)), (7, (2,)), (1_000, (2,))])
def test_both_versions_are_live_exactly_through_the_grace_window(height: int, live: tuple[int, ...]) -> None:
    assert live_versions(height, 4, 3) == live
    assert live_versions(height, 0, 3) == (1,)  # nobody has said when


def test_ids_are_made_under_the_newest_tag_that_is_live_at_their_height() -> None:
    core = moving()
    for height, expected in ((1, 1), (3, 1), (4, 2), (6, 2), (7, 2)):
        core.seal(height - core.state.open_height)
        assert version(core, core.enqueue(nonce=height)) == expected


def test_a_retry_over_the_boundary_is_still_the_same_job() -> None:
    core = moving()
    first = core.enqueue(nonce=1)
    core.seal(5)
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "units": 2}
    again = build_enqueue(core.state.policy, ALICE, Tier.FREE, payload, 100, 1)
    assert not isinstance(again, Refused)
    assert core.do(again) == ()
    assert list(core.state.queue.jobs) == [first]


@pytest.mark.rule("PRF-001", "RES-001")
@pytest.mark.parametrize(("height", "is_recognised"), [(3, True), (4, True), (6, True), (7, False)])
def test_a_nullifier_under_the_old_tag_is_recognised_until_the_window_ends(height: int, is_recognised: bool) -> None:
    """The test claims the old nullifier of a proof by hand; the same proof then comes again."""
    core = moving()
    job = core.enqueue()
    core.match()
    core.submit(job)
    envelope = unpack(core.state.submissions[core.lease_of(job).id])
    old = packed_nullifier(envelope.type, 0, envelope.body, 1)
    core.state.claims.add(nullifier_key(old), core.state.last_event, core.events[-1])
    core.seal(height - core.state.open_height)
    outcome = core.ask(RecordVerdict(core.lease_of(job).id, True))
    assert isinstance(outcome, Refused) == is_recognised
    if isinstance(outcome, Refused):
        assert outcome.name == "NullifierReuse"
    else:
        assert core.state.results[job].proof_nullifier == packed_nullifier(envelope.type, 0, envelope.body, 2)


def test_a_job_of_the_old_tag_is_done_and_used_after_the_change_also_through_a_reorg() -> None:
    core = moving()
    job = core.enqueue()
    core.seal(4)
    core.match()
    core.complete(job)
    nullifier = core.state.results[job].proof_nullifier
    core.seal()
    core.do(RollBackBlocks(Height(2)))  # below the change: what was made stays as it was made
    assert (version(core, job), core.state.results[job].proof_nullifier) == (1, nullifier)
    assert version(core, core.enqueue(nonce=2)) == 1
    core.seal(6)
    assert isinstance(core.consume(job), tuple)


@pytest.mark.rule("ENG-005", "RES-001")
def test_a_verdict_lacks_the_claims_under_every_live_tag() -> None:
    core = moving()
    job = core.enqueue()
    core.match()
    core.submit(job)
    core.seal(4)
    core.state.claims.may_be_stored = lambda _key: True
    (answer,) = state_machine.decide_run(core.state, [RecordVerdict(core.lease_of(job).id, True)], core.now_ms)
    assert isinstance(answer, NeedsClaims)
    envelope = unpack(core.state.submissions[core.lease_of(job).id])
    expected = [nullifier_key(packed_nullifier(envelope.type, 0, envelope.body, version)) for version in (2, 1)]
    assert list(answer.keys) == expected
