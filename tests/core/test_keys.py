"""API keys: who shows what gets in until when; a secret is nowhere but with its holder."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.books import done, empty, refused, run
from tests.counts import counts

from holdfast.core import law
from holdfast.core.act import Act, ActDone
from holdfast.core.event import Decided
from holdfast.core.key import (
    EXPIRES_MS_MAX,
    GRACE_MS_MAX,
    LABEL_MAX,
    SCOPES_MAX,
    Key,
    KeyMade,
    MakeKey,
    RevokeKey,
    Role,
    RotateKey,
    secret_hash,
    whose,
)
from holdfast.core.refusal import Refused
from holdfast.core.state import State, digest
from holdfast.core.values import AccountId, Digest, KeyId, Tier

pytestmark = pytest.mark.rule("SEC-001")
ID, OTHER = KeyId("0123456789abcdef"), KeyId("fedcba9876543210")
OLD, NEW = b"swordfish-" * 3, b"barracuda-" * 3
T = 1_000_000
GOOD = MakeKey(ID, secret_hash(OLD), Role.REQUESTER, AccountId("alice"))


def made(**told: Any) -> State:
    return done(empty(), msgspec.structs.replace(GOOD, **told), T)


def name_of(shown: Key | Refused) -> str:
    return shown.name if isinstance(shown, Refused) else "in"


def asked_in(state: State, secret: bytes, now_ms: int = T, id_: str = ID) -> str:
    return name_of(whose(state, id_, secret, now_ms))


# ------------------------------------------------------------------------------------------------ showing a key


def test_the_right_secret_opens_and_says_who_it_is() -> None:
    state = made(scopes=("cap.*", "chain.head"), tier=Tier.PRO, label="laptop")
    key = whose(state, ID, OLD, T)
    assert isinstance(key, Key)
    assert (key.role, key.account, key.tier, key.label) == (Role.REQUESTER, "alice", Tier.PRO, "laptop")
    assert key.scopes.split() == ["cap.*", "chain.head"]


def test_a_wrong_secret_and_an_unknown_id_are_told_the_very_same() -> None:
    state = done(made(), RevokeKey(ID), T)
    expired = msgspec.structs.replace(GOOD, id=OTHER, secret=secret_hash(NEW), expires_ms=T + 1)
    done(state, expired, T)
    answers = [
        whose(made(), ID, NEW, T),
        whose(made(), OTHER, OLD, T),
        whose(empty(), ID, OLD, T),
        whose(state, ID, NEW, T),  # revoked, but who does not know the secret does not learn it
        whose(state, OTHER, OLD, T + 5),
    ]
    assert all(answer == answers[0] for answer in answers)
    assert name_of(answers[0]) == "Unauthorized"


@pytest.mark.parametrize(("at", "says"), [(-1, "in"), (0, "KeyExpired"), (1, "KeyExpired")])
def test_a_key_ends_at_its_millisecond(at: int, says: str) -> None:
    assert asked_in(made(expires_ms=T + 500), OLD, T + 500 + at) == says


def test_a_revoked_key_opens_nothing_any_more() -> None:
    state = made()
    done(state, RevokeKey(ID), T + 7)
    assert asked_in(state, OLD) == "KeyRevoked"
    assert state.keys[ID].revoked_ms == T + 7
    assert law.decide(state, RevokeKey(ID), T + 9) == Decided((), since=state.keys[ID].event)
    assert refused(state, RotateKey(ID, secret_hash(NEW)), T).rule == "SEC-001"


@pytest.mark.parametrize(("at", "says"), [(-1, "in"), (0, "Unauthorized"), (1, "Unauthorized")])
def test_after_a_rotation_the_old_secret_is_good_until_its_grace_ends(at: int, says: str) -> None:
    state = done(made(), RotateKey(ID, secret_hash(NEW), 500), T)
    assert asked_in(state, NEW, T + 500 + at) == "in"
    assert asked_in(state, OLD, T + 500 + at) == says


def test_without_grace_the_old_secret_is_gone_at_once() -> None:
    state = done(made(), RotateKey(ID, secret_hash(NEW)), T)
    assert (asked_in(state, OLD), asked_in(state, NEW)) == ("Unauthorized", "in")


def test_only_the_last_secret_has_a_grace() -> None:
    state = made()
    for secret in (NEW, b"third" * 6):
        done(state, RotateKey(ID, secret_hash(secret), 500), T)
    assert [asked_in(state, each, T + 1) for each in (OLD, NEW, b"third" * 6)] == ["Unauthorized", "in", "in"]


def test_a_rotated_secret_does_not_outlive_the_key() -> None:
    state = done(made(expires_ms=T + 10), RotateKey(ID, secret_hash(NEW), 500), T)
    assert [asked_in(state, each, T + 10) for each in (OLD, NEW)] == ["KeyExpired", "KeyExpired"]


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
    assert no.says.startswith(says)


def test_all_that_is_wrong_with_a_key_is_said_at_once() -> None:
    no = refused(empty(), MakeKey(KeyId("x"), Digest(b""), Role.REQUESTER, expires_ms=0), T)
    assert [part.split(":")[0] for part in no.says.split("; ")] == ["id", "secret", "account", "expires_ms"]


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
    assert asked_in(made(**told), OLD) == "in"


@pytest.mark.rule("ENG-005")
def test_the_same_key_again_is_the_first_one() -> None:
    state = made()
    assert law.decide(state, GOOD, T + 9) == Decided((), since=state.last_event)


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
    assert refused(made(), msgspec.structs.replace(GOOD, **told), T).name == "IdReused"


@pytest.mark.parametrize("grace_ms", [-1, GRACE_MS_MAX + 1])
def test_a_grace_without_bounds_is_refused(grace_ms: int) -> None:
    assert refused(made(), RotateKey(ID, secret_hash(NEW), grace_ms), T).name == "InvalidParams"
    assert refused(made(), RotateKey(ID, Digest(b"short"), 0), T).name == "InvalidParams"
    assert refused(made(), RotateKey(OTHER, secret_hash(NEW)), T).name == "NotFound"
    assert refused(made(), RevokeKey(OTHER), T).name == "NotFound"
    done(made(), RotateKey(ID, secret_hash(NEW), GRACE_MS_MAX), T)


def test_rotating_to_the_secret_that_it_has_changes_nothing() -> None:
    state = made()
    before = digest(state)
    assert run(state, RotateKey(ID, secret_hash(OLD), 500), T) == ()
    assert digest(state) == before


# ------------------------------------------------------------------------------------------------ secrets


secrets = st.binary(min_size=16, max_size=64)


@given(secrets, secrets, st.integers(0, 2 * T))
@settings(max_examples=counts(40, 500))
def test_nothing_of_a_secret_is_in_a_refusal_in_the_state_or_in_its_events(mine: bytes, shown: bytes, now: int) -> None:
    state = empty()
    decided = law.decide(state, msgspec.structs.replace(GOOD, secret=secret_hash(mine), expires_ms=T + 5), T)
    assert isinstance(decided, Decided)
    for event in decided.events:
        law.apply(state, event)
    found = whose(state, ID, shown, now)
    said = repr((found, decided, state.keys)).encode() + msgspec.msgpack.encode(decided.events)
    for secret in (mine, shown):
        assert secret not in said
        assert repr(secret)[2:-1].encode() not in said
        assert secret.hex().encode() not in said


@given(secrets, secrets)
@settings(max_examples=counts(40, 500))
def test_another_secret_never_opens(mine: bytes, shown: bytes) -> None:
    state = made(secret=secret_hash(mine))
    assert (asked_in(state, shown) == "in") is (mine == shown)


def test_who_made_a_key_stands_before_it() -> None:
    decided = law.decide(empty(), Act("local", "key.make", GOOD), T)
    assert isinstance(decided, Decided)
    assert decided.events[0] == ActDone("local", "key.make", 1)
    assert isinstance(decided.events[1], KeyMade)
