"""Invitations: a token for one use gives a place and lets evidence be stored; it makes nobody eligible (SEC-002)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.core.commands import DEVELOPMENT, some_id
from tests.core.core_driver import YEAR_MS, CoreDriver, public

from holdfast.core.base.canonical import canonical
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, Amount, Network
from holdfast.core.evidence.messages import StoreEvidence
from holdfast.core.policy import EvidencePolicy, Policy, UnstakedEvidence
from holdfast.core.provider import decide as provider_decide
from holdfast.core.provider.invitations import INVITATION_MS, invitation_digest
from holdfast.core.provider.messages import Heartbeat, InviteProvider, Register, Stake
from holdfast.core.provider.model import ProviderStatus, provider_id
from holdfast.core.state import State
from holdfast.wire.signed_messages import invitation_token, read_invitation

pytestmark = pytest.mark.rule("SEC-002")
ID = provider_id(public(1))
SECRET = bytes(range(32))
STRICT = msgspec.structs.replace(DEVELOPMENT, evidence=EvidencePolicy(unstaked=UnstakedEvidence.INVITED))


@pytest.fixture
def core() -> CoreDriver:
    return CoreDriver(State(STRICT))


def registration(core: CoreDriver, number: int = 1, **told: object) -> Register:
    fields: dict[str, object] = {
        "public": public(number),
        "name": "oak",
        "account": AccountId("oak"),
        "capabilities": canonical({"AI": {"models": ["echo"]}}),
        "region": "",
        "price": 3,
        "slots": 4,
        "attested_until_ms": core.now_ms + YEAR_MS,
    }
    return Register(**(fields | told))  # type: ignore[arg-type]


def invited(core: CoreDriver, secret: bytes = SECRET) -> dict[str, Any]:
    """What a registration says that shows this invitation."""
    expires_ms = core.now_ms + INVITATION_MS
    core.do(InviteProvider(invitation_digest(secret, expires_ms), expires_ms, "me"))
    return {"invitation": invitation_digest(secret, expires_ms), "invitation_expires_ms": expires_ms}


def records(number: int = 1) -> StoreEvidence:
    id_ = provider_id(public(number))
    return StoreEvidence(id_, id_.hex(), "s", 1, 1, b"{}\n")


def refused(core: CoreDriver, command: object) -> Refused:
    before = len(core.events)
    outcome = core.ask(command)  # type: ignore[arg-type]
    assert isinstance(outcome, Refused), outcome
    assert len(core.events) == before
    return outcome


def test_evidence_without_stake_or_invitation_is_refused_by_name(core: CoreDriver) -> None:
    core.do(registration(core))
    no = refused(core, records())
    assert (no.rule, no.name) == ("SEC-002", "Forbidden")
    core.funded(AccountId("oak"), 1)
    core.do(Stake(ID, Amount(1), some_id(5)))
    assert core.do(records())


def test_an_invitation_lets_evidence_be_stored_and_gives_no_work(core: CoreDriver) -> None:
    core.do(registration(core, **invited(core)))
    assert core.do(records())
    core.do(Heartbeat(ID, 4))
    assert core.state.providers[ID].status is ProviderStatus.REGISTERED


def test_a_provider_that_is_registered_can_be_invited_later_and_shows_it_as_often_as_it_likes(core: CoreDriver) -> None:
    core.do(registration(core))
    told = invited(core) | {"attested_until_ms": core.state.providers[ID].attested_until_ms}
    assert len(core.do(registration(core, **told))) == 1
    core.now_ms += INVITATION_MS
    assert core.do(registration(core, **told)) == ()
    assert core.do(records())


def test_an_invitation_is_for_one_provider_and_seven_days(core: CoreDriver) -> None:
    told = invited(core)
    core.do(registration(core, **told))
    assert refused(core, registration(core, 2, **told)).name == "Forbidden"
    unknown = {"invitation": some_id(9), "invitation_expires_ms": core.now_ms + 1}
    assert refused(core, registration(core, 2, **unknown)).name == "Forbidden"
    late = invited(core, bytes(32))
    core.now_ms += INVITATION_MS - 1
    core.do(registration(core, 2, **late))
    late = invited(core, bytes(31) + b"1")
    core.now_ms += INVITATION_MS
    assert refused(core, registration(core, 3, **late)).name == "Forbidden"


def test_an_invitation_of_more_than_seven_days_or_none_is_refused(core: CoreDriver) -> None:
    for wrong in (core.now_ms, core.now_ms + INVITATION_MS + 1):
        assert refused(core, InviteProvider(some_id(1), wrong, "me")).name == "InvalidParams"
    assert refused(core, InviteProvider(b"short", core.now_ms + 1, "me")).name == "InvalidParams"


def test_free_registrations_do_not_take_the_places_of_the_invited(
    core: CoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_decide, "UNSTAKED_MAX", 4)
    for number in (1, 2, 3):
        core.do(registration(core, number))
    assert refused(core, registration(core, 4)).name == "BackPressure"
    core.do(registration(core, 4, **invited(core)))
    assert refused(core, registration(core, 5, **invited(core, bytes(32)))).name == "BackPressure"


def test_a_production_network_asks_for_invitations_and_a_development_network_does_not() -> None:
    assert Policy.for_network(Network.PRODUCTION).evidence.unstaked is UnstakedEvidence.INVITED
    open_core = CoreDriver()
    open_core.do(registration(open_core))
    assert open_core.do(records())


def test_a_token_is_read_as_it_was_made() -> None:
    assert read_invitation(invitation_token(SECRET, 1_700_000_000_000)) == (SECRET, 1_700_000_000_000)
    assert read_invitation("") == (b"", 0)
    with pytest.raises(ValueError, match="not an invitation"):
        read_invitation("hfi_1_zz")
