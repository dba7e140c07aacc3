"""Keys at the doors: make, rotate, revoke, list. Secrets never pass here, only their hashes."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core import key
from holdfast.core.act import Act
from holdfast.core.key import Key, Role
from holdfast.core.refusal import Refused
from holdfast.core.values import KeyId, Tier
from holdfast.doors.desk import EVERYBODY, OPERATORS, READERS, Desk, Method, Visitor, covers, nearest
from holdfast.doors.methods.money import Done, act, done
from holdfast.doors.methods.node import Nothing


class KeyShown(msgspec.Struct, frozen=True):
    """What anybody may see of a key."""

    id: KeyId
    role: Role
    account: str | None
    tier: Tier
    scopes: list[str]
    label: str
    made_ms: int
    expires_ms: int | None
    revoked_ms: int | None
    rotated_until_ms: int | None
    """Until when the secret before the last one is good, too."""


class Keys(msgspec.Struct, frozen=True):
    """All keys, oldest first."""

    keys: list[KeyShown]


def shown(found: Key) -> KeyShown:
    until = found.old_until_ms if found.old_secret is not None else None
    who = (found.id, found.role, found.account, found.tier, found.scopes.split(), found.label)
    return KeyShown(*who, found.made_ms, found.expires_ms, found.revoked_ms, until)


async def _make(desk: Desk, visitor: Visitor, asked: key.MakeKey) -> Done | Refused:
    if no := _why_not_scopes(asked.scopes) or _why_not_wider(visitor, asked.scopes):
        return no
    return done(await desk.submit(Act(visitor.name, "key.make", asked)))


def _why_not_scopes(scopes: tuple[str, ...]) -> Refused | None:
    from holdfast.doors.methods import METHODS  # noqa: PLC0415 - the table that this module is a part of

    groups = {f"{name.partition('.')[0]}.*" for name in METHODS}
    for scope in scopes:
        if scope not in METHODS and scope not in groups:
            hint = nearest(scope, [*METHODS, *groups])
            return Refused("SEC-001", f"scopes: no method {scope!r:.80}", hint, "InvalidParams")
    return None


async def _rotate(desk: Desk, visitor: Visitor, asked: key.RotateKey) -> Done | Refused:
    """A new secret is as good as a new key: it takes as much to hand one out."""
    scopes = await desk.source.ask(lambda state: tuple(k.scopes.split()) if (k := state.keys.get(asked.id)) else None)
    if scopes is not None and (no := _why_not_wider(visitor, scopes)):
        return no
    return done(await desk.submit(Act(visitor.name, "key.rotate", asked)))


def _why_not_wider(visitor: Visitor, scopes: tuple[str, ...]) -> Refused | None:
    """SEC-001: whoever is held to some methods cannot make a key that may do more."""
    if visitor.scopes and not (scopes and all(any(covers(own, each) for own in visitor.scopes) for each in scopes)):
        hint = f"name scopes within {' '.join(visitor.scopes)}"
        return Refused("SEC-001", "the new key would reach further than this one", hint, "Forbidden")
    return None


async def _list(desk: Desk, _: Visitor, __: Nothing) -> Keys:
    found = await desk.source.ask(lambda state: [shown(each) for each in state.keys.values()])
    return Keys(found)


async def _whoami(_: Desk, visitor: Visitor, __: Nothing) -> Visitor:
    return visitor


METHODS: Final[dict[str, Method]] = {
    "key.make": Method("Let somebody in.", key.MakeKey, Done, _make, OPERATORS, is_write=True),
    "key.rotate": Method(
        "Give a key another secret; the one before stays good for a while.",
        key.RotateKey,
        Done,
        _rotate,
        OPERATORS,
        is_write=True,
    ),
    "key.revoke": Method(
        "Let a key's holder in no longer.",
        key.RevokeKey,
        Done,
        act("key.revoke", lambda asked: asked),
        OPERATORS,
        is_write=True,
    ),
    "key.list": Method("All keys, without their secrets.", Nothing, Keys, _list, READERS),
    "key.whoami": Method("Whose key this is and what it may do.", Nothing, Visitor, _whoami, EVERYBODY),
}
