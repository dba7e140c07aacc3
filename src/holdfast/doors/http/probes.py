"""Questions of whoever watches the node (OBS-001): does the process live, does the node answer, what is counted."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from holdfast.core.refusal import Corrupt, Refused, Unavailable
from holdfast.doors import openrpc
from holdfast.doors.answers import problem_of
from holdfast.doors.desk import READERS, why_not_allowed
from holdfast.doors.http.asking import Asking
from holdfast.doors.http.events import address_of
from holdfast.doors.http.guests import token_of
from holdfast.doors.http.replies import OK, Receive, Reply, Scope, Send, say
from holdfast.doors.http.tally import CONTENT_TYPE
from holdfast.engine import read


class Probes:
    """Four small answers."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self.is_closing = False
        self._document: Reply | None = None

    async def alive(self, _: Scope, __: Receive, send: Send) -> None:
        await say(send, _json({"status": "alive"}))

    async def ready(self, _: Scope, __: Receive, send: Send) -> None:
        why = await self._why_not_ready()
        standing = self._asking.desk.source.standing()
        here = {"role": standing.role, "phase": standing.phase, "event": standing.tip.last}
        if why is None:
            await say(send, _json({"status": "ready"} | here))
            return
        said = {"name": why.name, "rule": why.rule, "message": why.says, "hint": why.hint}
        await say(send, _json({"status": "not ready"} | here | said, problem_of(why).answer.http))

    async def metrics(self, scope: Scope, _: Receive, send: Send) -> None:
        if (reply := await self._why_not_counts(scope)) is None:
            tally = self._asking.tally
            tally.dead_letters = await self._dead_letters()
            reply = Reply(OK, tally.text(), ((b"content-type", CONTENT_TYPE),))
        await say(send, reply)

    async def document(self, scope: Scope, _: Receive, send: Send) -> None:
        if (reply := self._asking.why_not_look(address_of(scope))) is None:
            if self._document is None:  # made once: that takes long, and the methods stay what they are
                self._document = _json(openrpc.document(self._asking.methods))
            reply = self._document
        await say(send, reply)

    async def _why_not_ready(self) -> Refused | None:
        """An owner whose journal does not confirm hangs instead of failing, so it gets a limited time to answer."""
        source, ready_ms = self._asking.desk.source, self._asking.settings.ready_ms
        if self.is_closing:
            return Refused("OBS-001", "the node is stopping", name="Unavailable")
        if (failed := getattr(source, "fault", None)) is not None:
            return Refused("OBS-001", f"the node failed: {failed}", "see its log", "Unavailable")
        try:
            async with asyncio.timeout(ready_ms / 1000):
                await source.ask(lambda state: None)
        except TimeoutError:
            return Refused("OBS-001", f"no answer within {ready_ms} ms", "is its disk well?", "Unavailable")
        except (Unavailable, Corrupt) as fault:
            return Refused(fault.rule, fault.says, fault.hint, "Unavailable")
        return None

    async def _dead_letters(self) -> int | None:
        """RTY-001: they are history and only in the tables; a node whose tables do not answer shows the rest."""
        try:
            async with asyncio.timeout(self._asking.settings.ready_ms / 1000):
                found = await read.page(self._asking.desk.source, "failed_job", {}, 0, read.PAGE_MAX)
        except (TimeoutError, Unavailable, Corrupt):
            return None
        return len(found.rows)

    async def _why_not_counts(self, scope: Scope) -> Reply | None:
        asking = self._asking
        if asking.settings.public_metrics:
            return asking.why_not_look(address_of(scope))
        visitor = await asking.admit(token_of(scope["headers"]), address_of(scope))
        if isinstance(visitor, Reply):
            return visitor
        method = msgspec.structs.replace(asking.methods[openrpc.NAME], roles=READERS)
        denied = why_not_allowed(visitor, "node.metrics", method)
        return None if denied is None else asking.refuse(denied)


def _json(said: dict[str, Any], status: int = OK) -> Reply:
    return Reply(status, msgspec.json.encode(said))
