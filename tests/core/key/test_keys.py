"""API keys: who shows what gets in until when; a secret is nowhere but with its holder."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.commands import done, empty, refused, run
from tests.counts import counts

from holdfast.core import state_machine
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided
from holdfast.core.base.privileged import PrivilegedActRecorded, PrivilegedCommand
from holdfast.core.base.values import AccountId, Digest, KeyId, Tier
from holdfast.core.key.decide import EXPIRES_MS_MAX, GRACE_MS_MAX, LABEL_MAX, SCOPES_MAX, authenticate
from holdfast.core.key.messages import CreateKey, KeyCreated, RevokeKey, RotateKey
from holdfast.core.key.model import Key, Role, secret_hash
from holdfast.core.state import State
from holdfast.core.state_digest import digest

pytestmark = pytest.mark.rule("SEC-001")
ID, OTHER = KeyId("0123456789abcdef"), KeyId("fedcba9876543210")
OLD, NEW = b"swordfish-" * 3, b"barracuda-" * 3
T = 1_000_000
GOOD = CreateKey(ID, secret_hash(OLD), Role.REQUESTER, AccountId("alice"))


def with_key(**told: Any) -> State:
    return done(empty(), msgspec.structs.replace(GOOD, **told), T)


def name_of(shown: Key | Refused) -> str:
    return shown.name if isinstance(shown, Refused) else "in"


def authenticate_with(state: State, secret: bytes, now_ms: int = T, id_: str = ID) -> str:
    return name_of(authenticate(state, id_, secret, now_ms))


# ------------------------------------------------------------------------------------------------ showing a key


def test_the_right_secret_opens_and_says_who_it_is() -> None:
    state = with_key(scopes=("cap.*", "chain.getHead"), tier=Tier.PRO, label="laptop")
    key = authenticate(state, ID, OLD, T)
    assert isinstance(key, Key)
    assert (key.role, key.account, key.tier, key.label) == (Role.REQUESTER, "alice", Tier.PRO, "laptop")
    assert key.scopes.split() == ["cap.*", "chain.getHead"]


def test_a_wrong_secret_and_an_unknown_id_get_the_very_same_refusal() -> None:
    state = done(with_key(), RevokeKey(ID), T)
    expired = msgspec.structs.replace(GOOD, id=OTHER, secret=secret_hash(NEW), expires_ms=T + 1)
    done(state, expired, T)
    answers = [
        authenticate(with_key(), ID, NEW, T),
        authenticate(with_key(), OTHER, OLD, T),
        authenticate(empty(), ID, OLD, T),
        authenticate(state, ID, NEW, T),  # revoked, but who does not know the secret does not learn it
        authenticate(state, OTHER, OLD, T + 5),
    ]
    assert all(answer == answers[0] for answer in answers)
    assert name_of(answers[0]) == "Unauthorized"


@pytest.mark.parametrize(("at", "says"), [(-1, "in"), (0, "KeyExpired"), (1, "KeyExpired")])
def test_a_key_ends_at_its_millisecond(at: int, says: str) -> None:
    assert authenticate_with(with_key(expires_ms=T + 500), OLD, T + 500 + at) == says


def test_a_revoked_key_opens_nothing_any_more() -> None:
    state = with_key()
    done(state, RevokeKey(ID), T + 7)
    assert authenticate_with(state, OLD) == "KeyRevoked"
    assert state.keys[ID].revoked_ms == T + 7
    assert state_machine.decide(state, RevokeKey(ID), T + 9) == Decided((), repeat_of=state.keys[ID].event)
    assert refused(state, RotateKey(ID, secret_hash(NEW)), T).rule == "SEC-001"


@pytest.mark.parametrize(("at", "says"), [(-1, "in"), (0, "Unauthorized"), (1, "Unauthorized")])
def test_after_a_rotation_the_old_secret_is_good_until_its_grace_ends(at: int, says: str) -> None:
    state = done(with_key(), RotateKey(ID, secret_hash(NEW), 500), T)
    assert authenticate_with(state, NEW, T + 500 + at) == "in"
    assert authenticate_with(state, OLD, T + 500 + at) == says


def test_without_grace_the_old_secret_is_gone_at_once() -> None:
    state = done(with_key(), RotateKey(ID, secret_hash(NEW)), T)
    assert (authenticate_with(state, OLD), authenticate_with(state, NEW)) == ("Unauthorized", "in")


def test_only_the_last_secret_has_a_grace() -> None:
    state = with_key()
    for secret in (NEW, b"third" * 6):
        done(state, RotateKey(ID, secret_hash(secret), 500), T)
    assert [authenticate_with(state, each, T + 1) for each in (OLD, NEW, b"third" * 6)] == ["Unauthorized", "in", "in"]


def test_a_rotated_secret_does_not_outlive_the_key() -> None:
    state = done(with_key(expires_ms=T + 10), RotateKey(ID, secret_hash(NEW), 500), T)
    assert [authenticate_with(state, each, T + 10) for each in (OLD, NEW)] == ["KeyExpired", "KeyExpired"]


# ------------------------------------------------------------------------------------------------ making a key


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"id": "0123456789ABCDEF"}, "id"),
        ({"id": "0123456789abcde"}, "id"),
        ({"id": "0123456789abcdef0"}, "id"),
        ({"secret": bytes(31)}, "secret"),
        ({"secret": bytes(33)}, "secret"),
        ({"account": None}, "account: a requester's"),
        ({"account": "Alice"}, "account: a requester's"),
        ({"account": "a" * 65}, "account: a requester's"),
        ({"role": Role.OPERATOR}, "account: only a requester's"),
        ({"role": Role.AUDITOR}, "account: only a requester's"),
        ({"role": Role.PROVIDER, "account": "Oak"}, "account: a provider's"),
        ({"role": Role.PROVIDER, "account": ""}, "account: a provider's"),
        ({"role": Role.PROVIDER, "account": "a" * 129}, "account: a provider's"),
        ({"label": "x" * (LABEL_MAX + 1)}, "label"),
        ({"label": "x\0"}, "label"),
        ({"label": "\x1b[2J"}, "label"),
        ({"scopes": ("cap.*",) * (SCOPES_MAX + 1)}, "scopes: at most"),
        ({"scopes": ("cap",)}, "scopes: a scope is"),
        ({"scopes": ("*",)}, "scopes: a scope is"),
        ({"scopes": ("cap.* key.*",)}, "scopes: a scope is"),
        ({"expires_ms": T}, "expires_ms"),
        ({"expires_ms": EXPIRES_MS_MAX}, "expires_ms: too far"),
        ({"expires_ms": 2**64}, "expires_ms: too far"),
    ],
)
def test_a_malformed_key_is_named_by_its_field(told: dict[str, Any], says: str) -> None:
    no = refused(empty(), msgspec.structs.replace(GOOD, **told), T)
    assert (no.rule, no.name) == ("SEC-001", "InvalidParams")
    assert no.message.startswith(says)


def test_all_that_is_wrong_with_a_key_is_said_at_once() -> None:
    no = refused(empty(), CreateKey(KeyId("x"), Digest(b""), Role.REQUESTER, expires_ms=0), T)
    assert [part.split(":")[0] for part in no.message.split("; ")] == ["id", "secret", "account", "expires_ms"]


@pytest.mark.parametrize(
    "told",
    [
        {"account": "a" * 64},
        {"label": "x" * LABEL_MAX},
        {"scopes": ("cap.*",) * SCOPES_MAX},
        {"expires_ms": T + 1},
        {"expires_ms": EXPIRES_MS_MAX - 1},
        {"role": Role.PROVIDER, "account": "a" * 128},
        *({"role": role, "account": None} for role in (Role.PROVIDER, Role.OPERATOR, Role.AUDITOR)),
    ],
)
def test_a_key_at_the_bounds_is_made(told: dict[str, Any]) -> None:
    assert authenticate_with(with_key(**told), OLD) == "in"


@pytest.mark.rule("ENG-005")
def test_the_same_key_again_is_the_first_one() -> None:
    state = with_key()
    assert state_machine.decide(state, GOOD, T + 9) == Decided((), repeat_of=state.last_event)


@pytest.mark.rule("ENG-005")
@pytest.mark.parametrize(
    "told",
    [
        {"secret": secret_hash(NEW)},
        {"role": Role.OPERATOR, "account": None},
        {"account": AccountId("bob")},
        {"tier": Tier.PREMIUM},
        {"scopes": ("cap.*",)},
        {"label": "other"},
        {"expires_ms": T + 5},
    ],
)
def test_a_used_id_for_another_key_is_refused(told: dict[str, Any]) -> None:
    assert refused(with_key(), msgspec.structs.replace(GOOD, **told), T).name == "IdReused"


@pytest.mark.parametrize("grace_ms", [-1, GRACE_MS_MAX + 1])
def test_a_grace_without_bounds_is_refused(grace_ms: int) -> None:
    assert refused(with_key(), RotateKey(ID, secret_hash(NEW), grace_ms), T).name == "InvalidParams"
    assert refused(with_key(), RotateKey(ID, Digest(b"short"), 0), T).name == "InvalidParams"
    assert refused(with_key(), RotateKey(OTHER, secret_hash(NEW)), T).name == "NotFound"
    assert refused(with_key(), RevokeKey(OTHER), T).name == "NotFound"
    done(with_key(), RotateKey(ID, secret_hash(NEW), GRACE_MS_MAX), T)


def test_rotating_to_the_secret_that_it_has_changes_nothing() -> None:
    state = with_key()
    before = digest(state)
    assert run(state, RotateKey(ID, secret_hash(OLD), 500), T) == ()
    assert digest(state) == before


# ------------------------------------------------------------------------------------------------ secrets


secrets = st.binary(min_size=16, max_size=64)


@given(secrets, secrets, st.integers(0, 2 * T))
@settings(max_examples=counts(40, 500))
def test_nothing_of_a_secret_is_in_a_refusal_in_the_state_or_in_its_events(mine: bytes, shown: bytes, now: int) -> None:
    state = empty()
    decided = state_machine.decide(state, msgspec.structs.replace(GOOD, secret=secret_hash(mine), expires_ms=T + 5), T)
    assert isinstance(decided, Decided)
    for event in decided.events:
        state_machine.apply(state, event)
    found = authenticate(state, ID, shown, now)
    said = repr((found, decided, state.keys)).encode() + msgspec.msgpack.encode(decided.events)
    for secret in (mine, shown):
        assert secret not in said
        assert repr(secret)[2:-1].encode() not in said
        assert secret.hex().encode() not in said


@given(secrets, secrets)
@settings(max_examples=counts(40, 500))
def test_another_secret_never_opens(mine: bytes, shown: bytes) -> None:
    state = with_key(secret=secret_hash(mine))
    assert (authenticate_with(state, shown) == "in") is (mine == shown)


def test_who_created_a_key_is_recorded_before_it() -> None:
    decided = state_machine.decide(empty(), PrivilegedCommand("local", "key.createKey", GOOD), T)
    assert isinstance(decided, Decided)
    assert decided.events[0] == PrivilegedActRecorded("local", "key.createKey", 1)
    assert isinstance(decided.events[1], KeyCreated)
