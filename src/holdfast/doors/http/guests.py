"""Who asks over the network (SEC-001): a token in a header, looked up without waiting for the disk where it is good."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core import key
from holdfast.core.refusal import Refused
from holdfast.doors.desk import NOBODY, Desk, Visitor, visitor_of
from holdfast.doors.http.replies import Header
from holdfast.doors.identify import TOKEN, identify
from holdfast.ports import Clock


def token_of(headers: Iterable[Header]) -> str | Refused | None:
    """The token that a request shows; None where it shows none."""
    shown = next((value for name, value in headers if name == b"authorization"), None)
    return None if shown is None else token_in(shown)


def token_in(shown: bytes) -> str | Refused:
    scheme, _, token = shown.partition(b" ")
    if scheme.lower() != b"bearer":
        return Refused("SEC-001", "the door knows tokens only", "send `Authorization: Bearer <token>`", "Unauthorized")
    return token.strip().decode("latin-1")


class Guests:
    """Knows keys by their tokens. A token is not kept, not logged and in no answer."""

    def __init__(self, desk: Desk, clock: Clock) -> None:
        self._desk, self._clock = desk, clock

    async def who(self, token: str | None) -> Visitor | Refused:
        """A good key is seen at once: whatever its holder asks waits for durability itself, and with it for the key.

        A no may rest on something that is not durable yet, so it is told only after that.
        """
        known = self.at_once(token)
        return known if known is not None else await identify(self._desk, self._clock, token)

    def at_once(self, token: str | None) -> Visitor | None:
        """The visitor, None where there is a no to be told."""
        if token is None:
            return NOBODY
        parts = TOKEN.fullmatch(token)
        if parts is None:
            return None
        id_, secret = parts.groups()
        source = self._desk.source
        now_ms = max(self._clock.wall_ms(), source.standing().tip.time_ms)
        found = key.whose(source.state, id_, secret.encode(), now_ms)
        return None if isinstance(found, Refused) else visitor_of(found)
