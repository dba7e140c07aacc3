"""Providers: taken in under their key, active with stake and heartbeat, never twice for one wish."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.core.books import some_id
from tests.core.ways import YEAR_MS, Way, public

from holdfast.core import law
from holdfast.core.canon import canonical, decode
from holdfast.core.escrow.books import broken_laws
from holdfast.core.machine import unreachable
from holdfast.core.provider import decide as provider_decide
from holdfast.core.provider.acts import Beat, ListingChanged, MoveProvider, Register, Stake, Unstake
from holdfast.core.provider.apply import apply_listed as apply
from holdfast.core.provider.record import PROVIDER_LIFE, ProviderAct, ProviderStatus, provider_id
from holdfast.core.refusal import Refused
from holdfast.core.values import AccountId, Amount

ID = provider_id(public(1))


def registration(way: Way, **change: object) -> Register:
    told: dict[str, object] = {
        "public": public(1),
        "name": "oak",
        "account": AccountId("oak"),
        "capabilities": canonical({"AI": {"models": ["echo"]}}),
        "region": "eu",
        "price": 3,
        "slots": 4,
        "attested_until_ms": way.now_ms + YEAR_MS,
    }
    return Register(**(told | change))  # type: ignore[arg-type]


@pytest.mark.rule("PRV-001")
def test_stake_and_heartbeat_in_either_order_make_a_provider_active() -> None:
    for stake_first in (True, False):
        way = Way()
        way.do(registration(way))
        way.funded(AccountId("oak"), 10_000)
        steps: list[law.Command] = [Stake(ID, Amount(10_000), some_id(5)), Beat(ID, 4)]
        way.do(steps[0 if stake_first else 1])
        assert way.state.providers[ID].status is ProviderStatus.REGISTERED
        way.do(steps[1 if stake_first else 0])
        assert way.state.providers[ID].status is ProviderStatus.ACTIVE


@pytest.mark.rule("PRV-001")
@pytest.mark.parametrize(("amount", "status"), [(9_999, ProviderStatus.REGISTERED), (10_000, ProviderStatus.ACTIVE)])
def test_the_stake_must_reach_the_minimum(amount: int, status: ProviderStatus) -> None:
    way = Way()
    way.do(registration(way))
    way.funded(AccountId("oak"), 10_000)
    way.do(Beat(ID, 4))
    way.do(Stake(ID, Amount(amount), some_id(5)))
    assert way.state.providers[ID].status is status


@pytest.mark.rule("PRV-001", "ESC-001")
def test_staking_holds_the_money_and_the_same_wish_again_stakes_once() -> None:
    way = Way()
    way.do(registration(way))
    way.funded(AccountId("oak"), 100)
    way.do(Stake(ID, Amount(60), some_id(5)))
    assert way.ask(Stake(ID, Amount(60), some_id(5))) == ()
    way.do(Stake(ID, Amount(40), some_id(6)))
    account = way.state.ledger.accounts[AccountId("oak")]
    assert (account.available, account.held, way.state.providers[ID].stake) == (0, 100, 100)
    more = way.ask(Stake(ID, Amount(1), some_id(7)))
    assert isinstance(more, Refused)
    assert more.name == "InsufficientFunds"
    assert broken_laws(way.state.ledger) == []


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
    way = Way()
    outcome = way.ask(registration(way, **change))
    assert isinstance(outcome, Refused)
    assert (outcome.rule, outcome.name) == ("PRV-001", "InvalidParams")
    assert says in outcome.says
    assert not way.state.providers


@pytest.mark.rule("PRV-001")
def test_registering_again_changes_what_is_said_and_nothing_else() -> None:
    way = Way()
    way.do(registration(way))
    assert way.ask(registration(way)) == ()
    way.do(registration(way, price=9))
    assert (way.state.providers[ID].price, len(way.state.providers)) == (9, 1)


@pytest.mark.rule("PRV-002", "SEC-001")
def test_what_a_stranger_says_it_can_run_is_read_once_however_long_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many heartbeats come in one message, and all of them are decided before anybody else is heard."""
    way, read = Way(), Counter[bytes]()

    def counted(packed: bytes) -> object:
        read[packed] += 1
        return decode(packed)

    monkeypatch.setattr(provider_decide, "decode", counted)
    capabilities = canonical({"AI": {"models": [f"model {number}" for number in range(1_000)]}})
    way.do(registration(way, capabilities=capabilities))
    for _ in range(50):
        way.do(Beat(ID, 4))
    assert read[capabilities] == 1


@pytest.mark.rule("PRV-002")
def test_a_heartbeat_says_when_and_how_much_and_only_of_the_known() -> None:
    way = Way()
    unknown = way.ask(Beat(ID, 4))
    assert isinstance(unknown, Refused)
    assert unknown.name == "NotFound"
    way.do(registration(way))
    way.now_ms += 5
    way.do(Beat(ID, 2))
    provider = way.state.providers[ID]
    assert (provider.heartbeat_ms, provider.slots) == (way.now_ms, 2)


@pytest.mark.rule("PRV-001")
def test_every_status_can_be_reached() -> None:
    assert unreachable(PROVIDER_LIFE, ProviderStatus.REGISTERED) == frozenset()


class Walked(dict[str, str]):
    """Lists that count how often somebody walks through them."""

    times = 0

    def items(self) -> Any:
        self.times += 1
        return super().items()


@pytest.mark.rule("MAT-002")
def test_a_change_of_the_lists_walks_through_them_once_and_not_once_for_each_provider() -> None:
    way = Way()
    for number in range(40):
        way.do(registration(way, public=public(number)))
    way.state.listings = listings = Walked({f"provider:{id_.hex()}": "allow" for id_ in way.state.providers})
    apply(way.state, ListingChanged("region:us", "", "deny", "", "ops", way.state.open_height))
    assert listings.times == 1
    assert not any(each.barred for each in way.state.providers.values())
    apply(way.state, ListingChanged("region:us", "deny", "allow", "", "ops", way.state.open_height))
    assert {each.barred for each in way.state.providers.values()} == {"its region is not among those allowed"}


@pytest.mark.rule("PRV-001", "SEC-001")
def test_so_many_strangers_and_no_more_are_known_until_one_stakes_or_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_decide, "STRANGERS_MAX", 2)
    way = Way()
    for number in (1, 2):
        way.do(registration(way, public=public(number)))
    no = way.ask(registration(way, public=public(3)))
    assert isinstance(no, Refused)
    assert (no.rule, no.name) == ("PRV-001", "BackPressure")
    way.do(registration(way, price=9))  # who is known says anew what it likes
    way.funded(AccountId("oak"), 10_000)
    way.do(Stake(ID, Amount(1), some_id(5)))
    way.do(registration(way, public=public(3)))
    assert isinstance(way.ask(registration(way, public=public(4))), Refused)
    way.do(MoveProvider(provider_id(public(2)), ProviderAct.RETIRE, "ops"))
    way.do(registration(way, public=public(4)))


@pytest.mark.rule("PRV-001", "ENG-005")
@pytest.mark.parametrize("is_recalled", [False, True], ids=["in memory", "recalled from the tables"])
def test_another_wish_under_the_name_of_one_that_was_done_is_not_called_done(is_recalled: bool) -> None:
    way = Way()
    way.provider(1)
    way.provider(2)
    way.do(Unstake(ID, Amount(5), some_id(9), "oak"))
    if is_recalled:
        way.state.claims.recalled = dict(way.state.claims.take_fresh())
        way.state.claims.recent.clear()
    assert way.ask(Unstake(ID, Amount(5), some_id(9), "oak")) == ()
    for id_, amount in ((ID, 6), (provider_id(public(2)), 5)):
        no = way.ask(Unstake(id_, Amount(amount), some_id(9), "oak"))
        assert isinstance(no, Refused)
        assert no.name == "IdReused"
