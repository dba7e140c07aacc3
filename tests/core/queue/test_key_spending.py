"""A key with a cap reserves at most so much in a day; other keys of the account and the next day are not concerned."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.core_driver import ALICE, CoreDriver

from holdfast.core import state_machine
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Amount, KeyId, Tier
from holdfast.core.key.messages import CreateKey, KeySpent
from holdfast.core.key.model import Role, secret_hash
from holdfast.core.policy import DAY_MS
from holdfast.core.queue.decide import build_enqueue, enqueue
from holdfast.core.queue.messages import Enqueue, RaiseFee

pytestmark = pytest.mark.rule("SEC-002")
CAPPED, FREE = KeyId("11" * 8), KeyId("22" * 8)


@pytest.fixture
def core() -> CoreDriver:
    driver = CoreDriver()
    driver.funded()
    for id_, cap in ((CAPPED, 250), (FREE, 0)):
        driver.do(CreateKey(id_, secret_hash(id_.encode()), Role.REQUESTER, ALICE, daily_cap=cap))
    return driver


def request(core: CoreDriver, nonce: int, fee: int = 100, key: KeyId = CAPPED) -> Enqueue:
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}
    command = build_enqueue(core.state.policy, ALICE, Tier.FREE, payload, fee, nonce)
    assert isinstance(command, Enqueue)
    return msgspec.structs.replace(command, key=key)


def refusal_of(core: CoreDriver, command: Enqueue | RaiseFee) -> str | None:
    answer = state_machine.decide(core.state, command, core.now_ms)
    return answer.name if isinstance(answer, Refused) else None


def test_what_would_go_over_the_cap_is_refused_by_name_and_changes_nothing(core: CoreDriver) -> None:
    for nonce in (1, 2):
        core.do(request(core, nonce))
    assert core.state.keys[CAPPED].spent == 200
    assert refusal_of(core, request(core, 3, fee=51)) == "SpendCapReached"
    assert refusal_of(core, request(core, 3, fee=50)) is None
    assert refusal_of(core, request(core, 3, fee=51, key=FREE)) is None
    assert refusal_of(core, request(core, 3, fee=51, key=KeyId(""))) is None


def test_a_run_of_jobs_is_counted_as_one_after_the_other(core: CoreDriver) -> None:
    answers = enqueue(core.state, [request(core, nonce) for nonce in range(4)], core.now_ms)
    assert [isinstance(answer, Refused) for answer in answers] == [False, False, True, True]
    day = core.now_ms // DAY_MS
    spent = [answer.events[-1] for answer in answers[:2]]  # type: ignore[union-attr]
    assert spent == [KeySpent(CAPPED, day, 100), KeySpent(CAPPED, day, 200)]


def test_a_repeat_is_not_counted_again(core: CoreDriver) -> None:
    for _ in range(3):
        core.do(request(core, 1))
    assert core.state.keys[CAPPED].spent == 100


def test_a_new_day_begins_at_nothing(core: CoreDriver) -> None:
    core.do(request(core, 1, fee=250))
    assert refusal_of(core, request(core, 2, fee=1)) == "SpendCapReached"
    core.now_ms = (core.now_ms // DAY_MS + 1) * DAY_MS - 1
    assert refusal_of(core, request(core, 2, fee=1)) == "SpendCapReached"
    core.now_ms += 1
    core.do(request(core, 2, fee=250))
    assert core.state.keys[CAPPED].spent == 250


def test_a_higher_fee_counts_with_what_it_adds(core: CoreDriver) -> None:
    core.do(request(core, 1))
    job = list(core.state.queue.jobs)[-1]
    assert refusal_of(core, RaiseFee(job, Amount(251), ALICE, CAPPED)) == "SpendCapReached"
    core.do(RaiseFee(job, Amount(250), ALICE, CAPPED))
    assert core.state.keys[CAPPED].spent == 250


@pytest.mark.parametrize(("role", "cap"), [(Role.OPERATOR, 5), (Role.REQUESTER, -1), (Role.REQUESTER, 2**62 + 1)])
def test_a_cap_is_a_number_of_a_requesters_key(core: CoreDriver, role: Role, cap: int) -> None:
    account = ALICE if role is Role.REQUESTER else None
    command = CreateKey(KeyId("33" * 8), secret_hash(b"x"), role, account, daily_cap=cap)
    answer = state_machine.decide(core.state, command, core.now_ms)
    assert isinstance(answer, Refused)
    assert "daily_cap" in answer.message
