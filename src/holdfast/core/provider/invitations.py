"""Invitations (SEC-002): an operator's token for one use, which gives a provider without a stake a place.

The node knows a hash of the token alone. It covers the time at which the token ends, so that no time needs to be stored
beside the claims: that a token was made, that it was used, and that a provider was invited.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.base.canonical import H
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided
from holdfast.core.base.values import Digest, ProviderId
from holdfast.core.index import unique_ids
from holdfast.core.policy import DAY_MS
from holdfast.core.provider.messages import InvitationUsed, InviteProvider, ProviderInvited, Register
from holdfast.core.provider.model import HasProviders

INVITATION_MS: Final = 7 * DAY_MS
INVITATION_TAG: Final = "holdfast.invitation.v1"


def invitation_digest(secret: bytes, expires_ms: int) -> Digest:
    """What the node knows of a token."""
    return Digest(H(INVITATION_TAG, secret, expires_ms))


def invite(state: HasProviders, command: InviteProvider, now_ms: int) -> Decided | Refused:
    """SEC-002: the operator has drawn the token and sends its hash."""
    if len(command.invitation) != 32:
        return Refused("SEC-002", f"invitation: {len(command.invitation)} bytes, must be 32", name="InvalidParams")
    if not now_ms < command.expires_ms <= now_ms + INVITATION_MS:
        message = f"expires_ms: {command.expires_ms} is not in {now_ms + 1} … {now_ms + INVITATION_MS}"
        return Refused("SEC-002", message, "an invitation is valid for seven days at most", "InvalidParams")
    event = ProviderInvited(command.invitation, command.expires_ms, command.by)
    return unique_ids.check_unique(state.claims, invited_key(event.invitation), event) or Decided((event,))


def use_invitation(
    state: HasProviders, command: Register, id_: ProviderId, now_ms: int
) -> tuple[InvitationUsed, ...] | Refused:
    """The use of the token that a registration shows; none where there is none, or where this provider has used it."""
    if not command.invitation:
        return ()
    used = InvitationUsed(command.invitation, id_)
    earlier = unique_ids.check_unique(state.claims, used_key(used.invitation), used)
    if isinstance(earlier, Decided):
        return ()
    is_known = state.claims.event_of(invited_key(command.invitation)) is not None
    if earlier is not None or not is_known or now_ms >= command.invitation_expires_ms:
        hint = "ask the operator for another: `holdfast provider invite`"
        return Refused("SEC-002", "the invitation is unknown, used or over", hint, "Forbidden")
    return (used,)


def is_invited(state: HasProviders, id_: ProviderId) -> bool:
    """Whether the provider has used an invitation; its claim is loaded before the decision (`invited_provider_key`)."""
    return state.claims.event_of(invited_provider_key(id_)) is not None


def invitation_keys(command: Register) -> tuple[bytes, ...]:
    return (invited_key(command.invitation), used_key(command.invitation)) if command.invitation else ()


def invited_key(invitation: bytes) -> bytes:
    return b"v" + invitation


def used_key(invitation: bytes) -> bytes:
    return b"d" + invitation


def invited_provider_key(id_: ProviderId) -> bytes:
    return b"p" + id_


# ------------------------------------------------------------------------------------------------ applying


def apply_invited(state: HasProviders, event: ProviderInvited) -> None:
    state.claims.add(invited_key(event.invitation), state.last_event, event)


def apply_used(state: HasProviders, event: InvitationUsed) -> None:
    state.claims.add(used_key(event.invitation), state.last_event, event)
    state.claims.add(invited_provider_key(event.id), state.last_event, event)
