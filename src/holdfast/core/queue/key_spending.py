"""What a key may still spend today (SEC-002): its cap counts the fees that its jobs reserve, in days of UTC."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided
from holdfast.core.base.values import KeyId
from holdfast.core.key.messages import KeySpent
from holdfast.core.key.model import Key, spent_today
from holdfast.core.policy import DAY_MS


class KeySpending:
    """Of one run of admissions: what they have spent so far is carried beside the state."""

    def __init__(self, keys: Mapping[KeyId, Key], now_ms: int) -> None:
        self._keys, self._now_ms = keys, now_ms
        self._spent: dict[KeyId, int] = {}

    def why_over_cap(self, id_: KeyId, fee: int) -> Refused | None:
        key = self._capped(id_)
        if key is None or (spent := self._of(key)) + fee <= key.daily_cap:
            return None
        message = f"this key has reserved {spent} of {key.daily_cap} today, {fee} more are needed"
        hint = "a new day begins at 00:00 UTC; or use another key"
        return Refused("SEC-002", message, hint, "SpendCapReached")

    def spend(self, id_: KeyId, fee: int, decided: Decided) -> Decided:
        """The decision, with what the key has spent then, where it has a cap."""
        key = self._capped(id_)
        if key is None:
            return decided
        spent = self._spent[id_] = self._of(key) + fee
        event = KeySpent(id_, self._now_ms // DAY_MS, spent)
        return msgspec.structs.replace(decided, events=(*decided.events, event))

    def _capped(self, id_: KeyId) -> Key | None:
        key = self._keys.get(id_) if id_ else None
        return key if key is not None and key.daily_cap else None

    def _of(self, key: Key) -> int:
        return self._spent.get(key.id, spent_today(key, self._now_ms))
