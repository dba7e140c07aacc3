"""Methods about API keys: create, rotate, revoke, list. Secrets never pass here, only their hashes."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.api.node_access import (
    EVERYBODY,
    LOCAL,
    OPERATORS,
    READERS,
    SCOPES_BESIDE_METHODS,
    NodeAccess,
    Principal,
    RpcCall,
    RpcMethod,
    is_in_scope,
)
from holdfast.api.rpc.params import NoParams
from holdfast.api.rpc.privileged import CommandResult, privileged_handler
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import KeyId, Tier
from holdfast.core.key import messages
from holdfast.core.key.model import Key, Role
from holdfast.engine.queries.accounts import GetKey, ListKeys
from holdfast.system.did_you_mean import did_you_mean


class KeyView(msgspec.Struct, frozen=True):
    """A key without its secret."""

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
    """Until when the previous secret is valid, too."""
    daily_cap: int = 0
    """How much its jobs may reserve in a day of UTC; 0: no limit (SEC-002)."""


class KeyList(msgspec.Struct, frozen=True):
    """All keys, oldest first."""

    keys: list[KeyView]


def key_view(key: Key) -> KeyView:
    return KeyView(
        id=key.id,
        role=key.role,
        account=key.account,
        tier=key.tier,
        scopes=key.scopes.split(),
        label=key.label,
        made_ms=key.made_ms,
        expires_ms=key.expires_ms,
        revoked_ms=key.revoked_ms,
        rotated_until_ms=key.old_until_ms if key.old_secret is not None else None,
        daily_cap=key.daily_cap,
    )


async def _why_not_create(_: NodeAccess, principal: Principal, params: messages.CreateKey) -> Refused | None:
    return (
        _why_not_role(principal, params.role)
        or _why_not_scopes(params.scopes)
        or _why_not_wider(principal, params.scopes)
    )


async def _why_not_rotate(access: NodeAccess, principal: Principal, params: messages.RotateKey) -> Refused | None:
    """A new secret is as good as a new key, so it needs the same rights."""
    key = await access.source.query_durable(GetKey(params.id))
    if key is None:
        return None
    return _why_not_role(principal, key.role) or _why_not_wider(principal, tuple(key.scopes.split()))


def _why_not_role(principal: Principal, role: Role) -> Refused | None:
    """ESC-003: who moves money is decided at the machine, not by whoever has an operator's key."""
    if role is not Role.TREASURER or principal == LOCAL:
        return None
    hint = "on the node's machine, without --url"
    return Refused("ESC-003", "a treasurer's key is created and rotated locally", hint, "Forbidden")


def _why_not_scopes(scopes: tuple[str, ...]) -> Refused | None:
    from holdfast.api.rpc.methods import METHODS  # noqa: PLC0415 - the table that this module is a part of

    names = {*METHODS, *SCOPES_BESIDE_METHODS}
    known = names | {f"{name.partition('.')[0]}.*" for name in names}
    unknown = next((scope for scope in scopes if scope not in known), None)
    if unknown is None:
        return None
    hint = did_you_mean(unknown, sorted(known), otherwise="rpc.discover lists them")
    return Refused("SEC-001", f"scopes: no method {unknown!r:.80}", hint, "InvalidParams")


def _why_not_wider(principal: Principal, scopes: tuple[str, ...]) -> Refused | None:
    """SEC-001: a key with scopes cannot create a key that may do more."""
    own = principal.scopes
    if not own or (scopes and all(any(is_in_scope(each, scope) for each in own) for scope in scopes)):
        return None
    hint = f"name scopes within {' '.join(own)}"
    return Refused("SEC-001", "the new key would reach further than this one", hint, "Forbidden")


async def _list(access: NodeAccess, _: RpcCall, __: NoParams) -> KeyList:
    keys = await access.source.query_durable(ListKeys())
    return KeyList([key_view(key) for key in keys])


async def _whoami(_: NodeAccess, call: RpcCall, __: NoParams) -> Principal:
    return call.principal


METHODS: Final[dict[str, RpcMethod]] = {
    "key.createKey": RpcMethod(
        "Create an API key.",
        messages.CreateKey,
        CommandResult,
        privileged_handler(lambda params, _: params, _why_not_create),
        OPERATORS,
        is_write=True,
    ),
    "key.rotateKey": RpcMethod(
        "Replace a key's secret; the previous one stays valid for a while.",
        messages.RotateKey,
        CommandResult,
        privileged_handler(lambda params, _: params, _why_not_rotate),
        OPERATORS,
        is_write=True,
    ),
    "key.revokeKey": RpcMethod(
        "Revoke a key.",
        messages.RevokeKey,
        CommandResult,
        privileged_handler(lambda params, _: params),
        OPERATORS,
        is_write=True,
    ),
    "key.listKeys": RpcMethod("All keys, without their secrets.", NoParams, KeyList, _list, READERS),
    "key.whoami": RpcMethod("The principal of this key, and its rights.", NoParams, Principal, _whoami, EVERYBODY),
}
