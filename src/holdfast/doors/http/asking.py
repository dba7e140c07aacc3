"""One message, whatever carried it: who asks, how often, how much, then the answer, then the count."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast.core.key import Role
from holdfast.core.refusal import Corrupt, Refused, Unavailable
from holdfast.doors import jsonrpc, openrpc
from holdfast.doors.buckets import Buckets
from holdfast.doors.desk import NOBODY, Desk, Method, Visitor
from holdfast.doors.http.guests import Guests
from holdfast.doors.http.nesting import why_not_nested
from holdfast.doors.http.replies import BAD_REQUEST, NO_CONTENT, OK, Header, Reply, no
from holdfast.doors.http.settings import HttpSettings
from holdfast.doors.http.tally import Tally
from holdfast.ports import Clock

STATUS: Final = {
    "ParseError": BAD_REQUEST,
    "InvalidRequest": BAD_REQUEST,
    "Unauthorized": 401,
    "KeyExpired": 401,
    "KeyRevoked": 401,
    "Forbidden": 403,
    "Unavailable": 503,
}
"""Answers to a single request that are also HTTP's own matter; every other one is told with 200, as is custom."""
OPEN_TO_ALL: Final = frozenset({openrpc.NAME, "node.status", "auth.token"})
"""What can be asked without a key even where reads are not public."""
CHALLENGE: Final[Header] = (b"www-authenticate", b"Bearer")
BATCH, UNREADABLE, UNKNOWN = "(batch)", "(unreadable)", "(unknown)"


class _Asked(msgspec.Struct, gc=False):
    method: str = ""


class _Data(msgspec.Struct, gc=False):
    name: str


class _Error(msgspec.Struct, gc=False):
    data: _Data


class _Said(msgspec.Struct, gc=False):
    error: _Error | None = None


_read_asked = msgspec.json.Decoder(_Asked).decode
_read_batch = msgspec.json.Decoder(list[msgspec.Raw]).decode
_read_said = msgspec.json.Decoder(_Said).decode
_read_saids = msgspec.json.Decoder(list[_Said]).decode


class Asking:
    """What all ways into this door share."""

    def __init__(
        self, desk: Desk, clock: Clock, settings: HttpSettings, methods: Mapping[str, Method], tally: Tally
    ) -> None:
        self.desk, self.settings, self.tally = desk, settings, tally
        self.guests = Guests(desk, clock)
        self.methods = openrpc.with_discovery(methods if settings.public_reads else _for_keys_only(methods))
        self._of_key = Buckets(clock, settings.key_per_s, settings.key_burst)
        self._of_address = Buckets(clock, settings.address_per_s, settings.address_burst)

    async def admit(self, token: str | Refused | None, address: str) -> Visitor | Reply:
        """Who asks, or the refusal; either way it has cost a token of their bucket."""
        try:
            visitor = token if isinstance(token, Refused) else await self.guests.who(token)
        except (Unavailable, Corrupt) as fault:
            return self.refuse(fault)
        if wait_ms := self._wait_ms(visitor, address, 1):
            return self._too_often(wait_ms)
        return self.refuse(visitor, CHALLENGE) if isinstance(visitor, Refused) else visitor

    def why_not_look(self, address: str) -> Reply | None:
        """What is open to all is as often as questions are, in a bucket of its own: neither takes from the other."""
        wait_ms = self._of_address.take(f"{address} looks")
        return self._too_often(wait_ms) if wait_ms else None

    async def answer(
        self, raw: bytes, visitor: Visitor, address: str, methods: Mapping[str, Method] | None = None
    ) -> Reply:
        """The answer to a message of somebody who was admitted."""
        if deep := why_not_nested(raw, self.settings.depth_max):
            return self.refuse(deep)
        name, count = self._look(raw)
        if count > self.settings.batch_max:
            says = f"a batch of {count} requests, at most {self.settings.batch_max}"
            return self.refuse(Refused("SEC-001", says, "send several batches", "TooLarge"))
        if count > 1 and (wait_ms := self._wait_ms(visitor, address, count - 1)):
            return self._too_often(wait_ms)
        began = time.perf_counter()
        self.tally.running += 1
        try:
            said = await jsonrpc.answer(self.desk, raw, visitor, methods or self.methods)
        finally:
            self.tally.running -= 1
        outcome = self._count(name, said, time.perf_counter() - began)
        if said is None:
            return Reply(NO_CONTENT, b"", ())
        status = STATUS.get(outcome, OK)
        return Reply(status, said) if status != 401 else Reply(status, said, (*Reply(OK, b"").headers, CHALLENGE))

    def refuse(self, why: Refused | Exception, *headers: Header, status: int | None = None) -> Reply:
        """A no of the door itself, counted."""
        reply = no(why, *headers, status=status)
        self.tally.refusals[why.name if isinstance(why, Refused) else type(why).__name__] += 1
        return reply

    def bytes_max(self, visitor: Visitor) -> int:
        return self.settings.nobody_bytes_max if visitor is NOBODY else self.settings.body_bytes_max

    def _wait_ms(self, visitor: Visitor | Refused, address: str, tokens: int) -> int:
        if isinstance(visitor, Refused) or visitor is NOBODY:
            return self._of_address.take(address, tokens)
        return self._of_key.take(visitor.name, tokens)

    def _too_often(self, wait_ms: int) -> Reply:
        why = Refused("SEC-001", "asked too often", f"ask again in {wait_ms} ms", "RateLimited")
        return self.refuse(why, (b"retry-after", b"%d" % -(-wait_ms // 1000)))

    def _look(self, raw: bytes) -> tuple[str, int]:
        """The method for the count of requests, and how many there are; what is wrong is for the decoder to say."""
        try:
            if raw.lstrip()[:1] == b"[":
                return BATCH, len(_read_batch(raw))
            name = _read_asked(raw).method
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return UNREADABLE, 1
        return (name if name in self.methods else UNKNOWN), 1

    def _count(self, name: str, said: bytes | None, seconds: float) -> str:
        if said is None:
            outcome = "ok"
        elif said[:1] == b"[":
            outcome = "ok" if all(one.error is None for one in _read_saids(said)) else "mixed"
        else:
            error = _read_said(said).error
            outcome = "ok" if error is None else error.data.name
        self.tally.asked(name, outcome, seconds)
        return outcome


def _for_keys_only(methods: Mapping[str, Method]) -> dict[str, Method]:
    """What everybody may ask becomes what every key may ask."""
    return {
        name: method if method.roles or name in OPEN_TO_ALL else msgspec.structs.replace(method, roles=frozenset(Role))
        for name, method in methods.items()
    }
