"""What an event does to API keys."""

from __future__ import annotations

from holdfast.core.base.records import record_from
from holdfast.core.key.messages import KeyCapped, KeyCreated, KeyRevoked, KeyRotated, KeySpent, key_claim
from holdfast.core.key.model import Key, KeyState


def apply_created(state: KeyState, event: KeyCreated) -> None:
    key = record_from(Key, event, event=state.last_event)
    state.keys[event.id] = state.touched["key"][event.id] = key
    state.claims.add(key_claim(event), state.last_event, event)


def apply_rotated(state: KeyState, event: KeyRotated) -> None:
    key = state.touched["key"][event.id] = state.keys[event.id]
    key.old_secret, key.old_until_ms, key.secret = key.secret, event.old_until_ms, event.secret


def apply_revoked(state: KeyState, event: KeyRevoked) -> None:
    key = state.touched["key"][event.id] = state.keys[event.id]
    key.revoked_ms = event.revoked_ms


def apply_capped(state: KeyState, event: KeyCapped) -> None:
    key = state.touched["key"][event.id] = state.keys[event.id]
    key.daily_cap = event.daily_cap


def apply_spent(state: KeyState, event: KeySpent) -> None:
    key = state.touched["key"][event.id] = state.keys[event.id]
    key.spent_day, key.spent = event.day, event.spent
