"""Providers: taken in under their key, active with stake and heartbeat, never twice for one wish."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.core.commands import some_id
from tests.core.core_driver import YEAR_MS, CoreDriver, public
from tests.core.reachable_states import unreachable_states

from holdfast.core.base.canonical import canonical, decode
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command
from holdfast.core.base.values import AccountId, Amount
from holdfast.core.escrow.invariants import broken_invariants
from holdfast.core.provider import decide as provider_decide
from holdfast.core.provider.apply import apply_listing_changed as apply
from holdfast.core.provider.messages import ChangeStatus, Heartbeat, ListingChanged, Register, Stake, Unstake
from holdfast.core.provider.model import PROVIDER_TRANSITIONS, ProviderStatus, ProviderTransition, provider_id

ID = provider_id(public(1))


def registration(core: CoreDriver, **change: object) -> Register:
    told: dict[str, object] = {
        "public": public(1),
        "name": "oak",
        "account": AccountId("oak"),
        "capabilities": canonical({"AI": {"models": ["echo"]}}),
        "region": "eu",
        "price": 3,
        "slots": 4,
        "attested_until_ms": core.now_ms + YEAR_MS,
    }
    return Register(**(told | change))  # type: ignore[arg-type]


@pytest.mark.rule("PRV-001")
def test_stake_and_heartbeat_in_either_order_make_a_provider_active() -> None:
    for stake_first in (True, False):
        core = CoreDriver()
        core.do(registration(core))
        core.funded(AccountId("oak"), 10_000)
        steps: list[Command] = [Stake(ID, Amount(10_000), some_id(5)), Heartbeat(ID, 4)]
        core.do(steps[0 if stake_first else 1])
        assert core.state.providers[ID].status is ProviderStatus.REGISTERED
        core.do(steps[1 if stake_first else 0])
        assert core.state.providers[ID].status is ProviderStatus.ACTIVE


@pytest.mark.rule("PRV-001")
@pytest.mark.parametrize(("amount", "status"), [(9_999, ProviderStatus.REGISTERED), (10_000, ProviderStatus.ACTIVE)])
def test_the_stake_must_reach_the_minimum(amount: int, status: ProviderStatus) -> None:
    core = CoreDriver()
    core.do(registration(core))
    core.funded(AccountId("oak"), 10_000)
    core.do(Heartbeat(ID, 4))
    core.do(Stake(ID, Amount(amount), some_id(5)))
    assert core.state.providers[ID].status is status


@pytest.mark.rule("PRV-001", "ESC-001")
def test_staking_reserves_the_money_and_the_same_request_again_stakes_once() -> None:
    core = CoreDriver()
    core.do(registration(core))
    core.funded(AccountId("oak"), 100)
    core.do(Stake(ID, Amount(60), some_id(5)))
    assert core.ask(Stake(ID, Amount(60), some_id(5))) == ()
    core.do(Stake(ID, Amount(40), some_id(6)))
    account = core.state.ledger.accounts[AccountId("oak")]
    assert (account.available, account.held, core.state.providers[ID].stake) == (0, 100, 100)
    more = core.ask(Stake(ID, Amount(1), some_id(7)))
    assert isinstance(more, Refused)
    assert more.name == "InsufficientFunds"
    assert broken_invariants(core.state.ledger) == []


@pytest.mark.rule("PRV-001")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"public": b"short"}, "public"),
        ({"name": ""}, "name"),
        ({"account": "mint"}, "account"),
        ({"price": -1}, "price"),
        ({"slots": 0}, "slots"),
        ({"capabilities": b"\xff"}, "capabilities"),
        ({"capabilities": canonical({"AI": {"models": ["x" * 16_384]}})}, "capabilities: at most"),
        ({"capabilities": canonical({"BOILING": {}})}, "capabilities"),
        ({"attested_until_ms": 0}, "attest"),
    ],
)
def test_what_is_wrong_with_a_registration_is_named(change: dict[str, object], says: str) -> None:
    core = CoreDriver()
    outcome = core.ask(registration(core, **change))
    assert isinstance(outcome, Refused)
    assert (outcome.rule, outcome.name) == ("PRV-001", "InvalidParams")
    assert says in outcome.message
    assert not core.state.providers


@pytest.mark.rule("PRV-001")
def test_registering_again_changes_what_is_said_and_nothing_else() -> None:
    core = CoreDriver()
    core.do(registration(core))
    assert core.ask(registration(core)) == ()
    core.do(registration(core, price=9))
    assert (core.state.providers[ID].price, len(core.state.providers)) == (9, 1)


@pytest.mark.rule("PRV-002", "SEC-001")
def test_what_an_unstaked_provider_says_it_can_run_is_read_once_however_long_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many heartbeats come in one message, and all of them are decided before anybody else is heard."""
    core, read = CoreDriver(), Counter[bytes]()

    def counted(packed: bytes) -> object:
        read[packed] += 1
        return decode(packed)

    monkeypatch.setattr(provider_decide, "decode", counted)
    capabilities = canonical({"AI": {"models": [f"model {number}" for number in range(1_000)]}})
    core.do(registration(core, capabilities=capabilities))
    for _ in range(50):
        core.do(Heartbeat(ID, 4))
    assert read[capabilities] == 1


@pytest.mark.rule("PRV-002")
def test_a_heartbeat_says_when_and_how_much_and_only_of_the_known() -> None:
    core = CoreDriver()
    unknown = core.ask(Heartbeat(ID, 4))
    assert isinstance(unknown, Refused)
    assert unknown.name == "NotFound"
    core.do(registration(core))
    core.now_ms += 5
    core.do(Heartbeat(ID, 2))
    provider = core.state.providers[ID]
    assert (provider.heartbeat_ms, provider.slots) == (core.now_ms, 2)


@pytest.mark.rule("PRV-001")
def test_every_status_can_be_reached() -> None:
    assert unreachable_states(PROVIDER_TRANSITIONS, ProviderStatus.REGISTERED) == frozenset()


class CountingDict(dict[str, str]):
    """Lists that count how often somebody walks through them."""

    times = 0

    def items(self) -> Any:
        self.times += 1
        return super().items()


@pytest.mark.rule("MAT-002")
def test_a_change_of_the_lists_walks_through_them_once_and_not_once_for_each_provider() -> None:
    core = CoreDriver()
    for number in range(40):
        core.do(registration(core, public=public(number)))
    core.state.listings = listings = CountingDict({f"provider:{id_.hex()}": "allow" for id_ in core.state.providers})
    apply(core.state, ListingChanged("region:us", "", "deny", "", "ops", core.state.open_height))
    assert listings.times == 1
    assert not any(each.denied_by_list for each in core.state.providers.values())
    apply(core.state, ListingChanged("region:us", "deny", "allow", "", "ops", core.state.open_height))
    assert {each.denied_by_list for each in core.state.providers.values()} == {"its region is not among those allowed"}


@pytest.mark.rule("PRV-001", "SEC-001")
def test_so_many_unstaked_providers_and_no_more_are_known_until_one_stakes_or_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provider_decide, "UNSTAKED_MAX", 2)
    core = CoreDriver()
    for number in (1, 2):
        core.do(registration(core, public=public(number)))
    no = core.ask(registration(core, public=public(3)))
    assert isinstance(no, Refused)
    assert (no.rule, no.name) == ("PRV-001", "BackPressure")
    core.do(registration(core, price=9))  # who is known says anew what it likes
    core.funded(AccountId("oak"), 10_000)
    core.do(Stake(ID, Amount(1), some_id(5)))
    core.do(registration(core, public=public(3)))
    assert isinstance(core.ask(registration(core, public=public(4))), Refused)
    core.do(ChangeStatus(provider_id(public(2)), ProviderTransition.RETIRE, "ops"))
    core.do(registration(core, public=public(4)))


@pytest.mark.rule("PRV-001", "ENG-005")
@pytest.mark.parametrize("is_recalled", [False, True], ids=["in memory", "recalled from the tables"])
def test_another_request_under_the_id_of_one_that_was_done_is_refused(is_recalled: bool) -> None:
    core = CoreDriver()
    core.provider(1)
    core.provider(2)
    core.do(Unstake(ID, Amount(5), some_id(9), "oak"))
    if is_recalled:
        core.state.claims.loaded = dict(core.state.claims.drain_recent())
        core.state.claims.recent.clear()
    assert core.ask(Unstake(ID, Amount(5), some_id(9), "oak")) == ()
    for id_, amount in ((ID, 6), (provider_id(public(2)), 5)):
        no = core.ask(Unstake(id_, Amount(amount), some_id(9), "oak"))
        assert isinstance(no, Refused)
        assert no.name == "IdReused"
