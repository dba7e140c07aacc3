"""A provider's life: every arrow of its table leads where it says, no other is there, and all leave their trace."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.books import DEVELOPMENT, some_id
from tests.core.test_policy import turned
from tests.core.ways import YEAR_MS, Way, public

from holdfast.core.act import Act, ActDone
from holdfast.core.canon import canonical
from holdfast.core.escrow.books import broken_laws
from holdfast.core.provider.acts import (
    Beat,
    Drain,
    HeartbeatMissed,
    List,
    ListingChanged,
    MoveProvider,
    ProviderDrained,
    ProviderMoved,
    Register,
    RotateSigner,
    SignerRotated,
    Stake,
    StakeReleased,
    Tend,
    Unstake,
)
from holdfast.core.provider.apply import looked_after
from holdfast.core.provider.record import (
    PROVIDER_LIFE,
    Provider,
    ProviderAct,
    ProviderStatus,
    holder_of,
    provider_id,
    stake_id,
)
from holdfast.core.refusal import Refused
from holdfast.core.state import State
from holdfast.core.values import AccountId, Amount, ProviderId

POLICY = turned(DEVELOPMENT, provider__unstake_lock_blocks=3, provider__unstake_cooldown_ms=10_000)
ID = provider_id(public(1))
BY_HAND = (ProviderAct.JAIL, ProviderAct.UNJAIL, ProviderAct.SUSPEND, ProviderAct.RECOVER, ProviderAct.RETIRE)


ARROWS = {
    ("REGISTERED", "jail"): "JAILED",
    ("REGISTERED", "retire"): "RETIRED",
    ("ACTIVE", "jail"): "JAILED",
    ("ACTIVE", "suspend"): "SUSPENDED",
    ("ACTIVE", "retire"): "RETIRED",
    ("SUSPENDED", "recover"): "ACTIVE",
    ("SUSPENDED", "jail"): "JAILED",
    ("SUSPENDED", "retire"): "RETIRED",
    ("JAILED", "unjail"): "REGISTERED",
    ("JAILED", "retire"): "RETIRED",
}
"""Written down a second time: every arrow that can be asked for; all others are refused."""


def active() -> Way:
    way = Way(State(POLICY))
    way.provider(1)
    return way


def one(way: Way, id_: ProviderId = ID) -> Provider:
    return way.state.providers[id_]


def no(way: Way, command: Any) -> Refused:
    before = list(way.events)
    outcome = way.ask(command)
    assert isinstance(outcome, Refused), outcome
    assert way.events == before
    return outcome


def moved(way: Way, act: ProviderAct, **told: Any) -> ProviderMoved:
    event = way.do(MoveProvider(ID, act, "ops", **told))[0]
    assert isinstance(event, ProviderMoved)
    return event


def brought_to(status: ProviderStatus) -> Way:
    """A provider in this status, on the way an operator or time brings it there."""
    way = active()
    if status is ProviderStatus.REGISTERED:
        moved(way, ProviderAct.JAIL)
        moved(way, ProviderAct.UNJAIL)
    elif status is not ProviderStatus.ACTIVE:
        acts = {
            ProviderStatus.JAILED: ProviderAct.JAIL,
            ProviderStatus.SUSPENDED: ProviderAct.SUSPEND,
            ProviderStatus.RETIRED: ProviderAct.RETIRE,
        }
        moved(way, acts[status])
    assert one(way).status is status
    return way


# ------------------------------------------------------------------------------------------------ the table


@pytest.mark.rule("PRV-001")
@pytest.mark.parametrize("status", ProviderStatus)
@pytest.mark.parametrize("act", BY_HAND)
def test_every_arrow_of_the_table_leads_where_it_says_and_there_is_no_other(
    status: ProviderStatus, act: ProviderAct
) -> None:
    way = brought_to(status)
    after = ARROWS.get((status.value, act.value))
    if after is None:
        refusal = no(way, MoveProvider(ID, act, "ops"))
        assert refusal.rule == "PRV-001"
        assert str(status) in refusal.says
        return
    event = moved(way, act, reason="as the test says")
    told = (event.before, event.after, event.reason, event.actor, event.height)
    assert told == (status, after, "as the test says", "ops", way.state.open_height)
    assert one(way).status == after


@pytest.mark.rule("PRV-001")
def test_the_table_has_these_arrows_and_those_that_follow_by_themselves() -> None:
    table = {(str(state), str(act)): str(after) for state, acts in PROVIDER_LIFE.items() for act, after in acts.items()}
    assert table == ARROWS | {("REGISTERED", "activate"): "ACTIVE", ("ACTIVE", "lapse"): "REGISTERED"}


@pytest.mark.rule("PRV-001")
@pytest.mark.parametrize("act", [ProviderAct.ACTIVATE, ProviderAct.LAPSE])
def test_what_follows_from_stake_and_heartbeats_is_nobody_s_to_ask_for(act: ProviderAct) -> None:
    assert no(active(), MoveProvider(ID, act, "ops")).name == "InvalidParams"


@pytest.mark.rule("PRV-001", "SEC-001")
def test_a_privileged_move_leaves_the_name_of_whoever_made_it() -> None:
    way = active()
    way.do(Act("key-7", "provider.jail", MoveProvider(ID, ProviderAct.JAIL, "key-7", "cheats")))
    done, event = way.events[-2:]
    assert (isinstance(done, ActDone), getattr(done, "actor", "")) == (True, "key-7")
    assert isinstance(event, ProviderMoved)
    assert (one(way).reason, one(way).moved_by) == ("cheats", "key-7")


def test_a_reason_that_cannot_be_shown_is_refused() -> None:
    for reason in ("a\nb", "x" * 201):
        assert no(active(), MoveProvider(ID, ProviderAct.JAIL, "ops", reason)).name == "InvalidParams"


@pytest.mark.rule("PRV-001")
def test_retired_is_the_end() -> None:
    way = brought_to(ProviderStatus.RETIRED)
    told = (AccountId("provider-1"), canonical({"AI": {"models": ["echo"]}}), "eu", 3, 4, way.now_ms + YEAR_MS)
    commands: list[Any] = [
        Beat(ID, 4),
        Stake(ID, Amount(1), some_id(77)),
        Drain(ID, True, "ops"),
        Register(public(1), "another name", *told),
    ]
    for command in commands:
        assert "final" in no(way, command).says


# ------------------------------------------------------------------------------------------------ jail


@pytest.mark.rule("PRV-001")
def test_jail_for_some_blocks_ends_by_itself_at_its_height_and_a_heartbeat_makes_it_active_again() -> None:
    way = active()
    event = moved(way, ProviderAct.JAIL, blocks=2)
    until = way.state.open_height + 2
    assert (event.until, one(way).jailed_until) == (until, until)
    way.seal()
    assert way.ask(Tend()) == (), "one block too early"
    way.seal()
    assert way.state.open_height == until
    freed = way.do(Tend())[0]
    assert isinstance(freed, ProviderMoved)
    assert (freed.after, freed.actor) == (ProviderStatus.REGISTERED, "holdfast")
    assert one(way).jailed_until == 0
    way.do(Beat(ID, 4))
    assert one(way).status is ProviderStatus.ACTIVE


@pytest.mark.rule("PRV-001")
def test_jail_without_an_end_lasts_until_somebody_opens() -> None:
    way = active()
    moved(way, ProviderAct.JAIL)
    way.seal(20)
    assert way.ask(Tend()) == ()
    moved(way, ProviderAct.UNJAIL)
    assert one(way).status is ProviderStatus.REGISTERED


# ------------------------------------------------------------------------------------------------ drain


def test_draining_is_an_event_with_before_and_after_and_the_same_again_is_none() -> None:
    way = active()
    event = way.do(Drain(ID, True, "ops", "new disks"))[0]
    assert event == ProviderDrained(ID, False, True, "new disks", "ops", way.state.open_height)
    assert way.ask(Drain(ID, True, "ops")) == ()
    way.do(Drain(ID, False, "ops"))
    assert one(way).is_draining == 0


# ------------------------------------------------------------------------------------------------ taking stake back


def unstake(way: Way, amount: int, request: int = 9) -> Any:
    return way.ask(Unstake(ID, Amount(amount), some_id(request), "ops"))


def money_of(way: Way) -> tuple[int, int, int]:
    account = way.state.ledger.accounts[AccountId("provider-1")]
    assert broken_laws(way.state.ledger) == []
    hold = way.state.ledger.holds.get(stake_id(ID))
    assert (hold.amount if hold else 0) == one(way).at_stake
    return account.available, account.held, one(way).stake


@pytest.mark.rule("PRV-001", "ESC-001")
def test_stake_is_given_back_when_both_its_blocks_and_its_time_are_over() -> None:
    way = active()
    way.do(Stake(ID, Amount(5_000), way.new_id()))
    unstake(way, 5_000)
    assert (money_of(way), one(way).unstaking) == ((5_000, 15_000, 10_000), 5_000)
    way.now_ms += 90_000
    assert [type(each) for each in way.do(Tend())] == [HeartbeatMissed], "the blocks are not there"
    way.do(Beat(ID, 4))
    way.seal(2)
    assert way.ask(Tend()) == (), "one block is missing"
    way.seal()
    assert way.do(Tend()) == (StakeReleased(ID, Amount(5_000)),)
    assert (money_of(way), one(way).unstaking, one(way).status) == ((10_000, 10_000, 10_000), 0, ProviderStatus.ACTIVE)


@pytest.mark.rule("PRV-001")
@pytest.mark.parametrize(("wait_ms", "is_free"), [(9_999, False), (10_000, True)])
def test_stake_is_not_given_back_a_millisecond_too_soon(wait_ms: int, is_free: bool) -> None:
    way = active()
    unstake(way, 1)
    way.seal(3)
    way.now_ms += wait_ms
    assert (way.ask(Tend()) != ()) is is_free


@pytest.mark.rule("PRV-001")
@pytest.mark.parametrize(("amount", "status"), [(0, None), (10_000, "REGISTERED"), (1, "REGISTERED"), (10_001, None)])
def test_below_the_minimum_it_is_only_registered(amount: int, status: str | None) -> None:
    way = active()
    outcome = unstake(way, amount)
    assert isinstance(outcome, Refused) is (status is None)
    assert one(way).status == (status or "ACTIVE")


@pytest.mark.rule("PRV-001")
def test_all_of_it_can_be_taken_back_and_put_there_again() -> None:
    way = active()
    unstake(way, 10_000)
    way.seal(3)
    way.now_ms += 10_000
    way.do(Tend())
    assert money_of(way) == (20_000, 0, 0)
    way.do(Beat(ID, 4))
    way.do(Stake(ID, Amount(10_000), way.new_id()))
    assert (money_of(way), one(way).status) == ((10_000, 10_000, 10_000), ProviderStatus.ACTIVE)


@pytest.mark.rule("PRV-001")
def test_one_wish_to_unstake_is_done_once_and_only_one_at_a_time() -> None:
    way = active()
    unstake(way, 4_000)
    assert unstake(way, 4_000) == ()
    assert "on its way" in no(way, Unstake(ID, Amount(1), some_id(10), "ops")).says
    assert one(way).at_stake == 10_000


@pytest.mark.rule("PRV-001")
@pytest.mark.parametrize(
    ("status", "amount", "may"),
    [
        (ProviderStatus.JAILED, 1, False),
        (ProviderStatus.SUSPENDED, 1, False),
        (ProviderStatus.RETIRED, 10_000, True),
        (ProviderStatus.REGISTERED, 10_000, True),
    ],
)
def test_who_sits_takes_nothing_back_and_who_has_left_takes_all(status: ProviderStatus, amount: int, may: bool) -> None:
    way = brought_to(status)
    assert isinstance(unstake(way, amount), Refused) is not may
    assert one(way).status is status


@pytest.mark.rule("PRV-001")
def test_with_leases_in_hand_the_minimum_stays() -> None:
    way = active()
    way.do(Stake(ID, Amount(5), way.new_id()))
    one(way).leases = 1
    assert "drain first" in no(way, Unstake(ID, Amount(6), some_id(9), "ops")).hint
    assert not isinstance(unstake(way, 5), Refused)


# ------------------------------------------------------------------------------------------------ another key


@pytest.mark.rule("PRV-003")
def test_with_another_key_it_is_the_same_provider_and_the_old_key_is_nobody_s() -> None:
    way = active()
    event = way.do(RotateSigner(ID, public(7), "itself"))[0]
    assert event == SignerRotated(ID, public(1), public(7), "itself", way.state.open_height)
    assert (one(way).signing_key, one(way).public) == (public(7), public(1))
    assert holder_of(way.state, public(7)) == ID
    told = (AccountId("provider-1"), canonical({"AI": {"models": ["echo"]}}), "eu", 9, 4, way.now_ms + YEAR_MS)
    assert no(way, Register(public(1), "p1", *told)).rule == "PRV-003"
    way.do(Register(public(7), "p1", *told))
    assert (len(way.state.providers), one(way).price) == (1, 9)
    way.do(RotateSigner(ID, public(8), "itself"))
    assert holder_of(way.state, public(7)) != ID
    way.do(RotateSigner(ID, public(1), "itself"))
    assert (one(way).current_key, way.state.ward.keyring) == (b"", {})


@pytest.mark.rule("PRV-003")
def test_a_key_is_changed_to_one_that_is_nobody_s_and_while_nothing_is_in_hand() -> None:
    way = active()
    way.provider(2)
    other = provider_id(public(2))
    assert "another provider" in no(way, RotateSigner(ID, public(2), "itself")).says
    way.do(RotateSigner(other, public(5), "itself"))
    for taken in (public(2), public(5)):
        assert "another provider" in no(way, RotateSigner(ID, taken, "itself")).says
    assert no(way, RotateSigner(ID, b"short", "itself")).name == "InvalidParams"
    one(way).leases = 1
    assert no(way, RotateSigner(ID, public(9), "itself")).hint == "drain first"


# ------------------------------------------------------------------------------------------------ lists


def listed(way: Way, subject: str, verdict: str) -> None:
    way.do(List(subject, verdict, "ops"))


@pytest.mark.rule("MAT-002")
def test_who_is_denied_is_barred_and_once_somebody_is_allowed_everybody_else_is() -> None:
    way = active()
    way.provider(2)
    other = provider_id(public(2))
    listed(way, f"provider:{ID.hex()}", "deny")
    assert (one(way).barred, one(way, other).barred) == ("denied", "")
    listed(way, f"provider:{ID.hex()}", "allow")
    assert (one(way).barred, one(way, other).barred) == ("", "not among those allowed")
    listed(way, f"provider:{ID.hex()}", "")
    assert (one(way).barred, one(way, other).barred, way.state.listings) == ("", "", {})


@pytest.mark.rule("MAT-002")
def test_a_region_is_denied_or_allowed_and_a_provider_that_moves_is_looked_at_again() -> None:
    way = active()
    listed(way, "region:eu", "deny")
    assert one(way).barred == "its region is denied"
    told = (AccountId("provider-1"), canonical({"AI": {"models": ["echo"]}}), "us", 3, 4, way.now_ms + YEAR_MS)
    way.do(Register(public(1), "p1", *told))
    assert one(way).barred == ""
    listed(way, "region:asia", "allow")
    assert one(way).barred == "its region is not among those allowed"


def test_a_list_says_who_changed_it_and_takes_only_what_it_can_mean() -> None:
    way = active()
    event = way.do(List("region:eu", "deny", "ops", "rules"))[0]
    assert event == ListingChanged("region:eu", "", "deny", "rules", "ops", way.state.open_height)
    assert way.ask(List("region:eu", "deny", "ops")) == ()
    for subject, verdict in (("planet:mars", "deny"), ("provider:12", "deny"), ("region:eu", "perhaps")):
        assert no(way, List(subject, verdict, "ops")).name == "InvalidParams"


# ------------------------------------------------------------------------------------------------ the index


def test_the_index_of_who_is_due_is_the_one_that_the_records_give() -> None:
    way = active()
    way.provider(2)
    moved(way, ProviderAct.JAIL, blocks=5)
    way.do(RotateSigner(provider_id(public(2)), public(6), "itself"))
    way.do(Unstake(provider_id(public(2)), Amount(10), way.new_id(), "ops"))
    ward = way.state.ward
    assert (ward.due, ward.heights, ward.keyring) == _parts(looked_after(way.state))
    assert ward.heights == {ID: way.state.open_height + 5, provider_id(public(2)): way.state.open_height + 3}


def _parts(ward: Any) -> tuple[Any, Any, Any]:
    return ward.due, ward.heights, ward.keyring
