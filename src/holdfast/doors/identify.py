"""From a token to a visitor (SEC-001). A token is `hf_<key id>_<secret>`; the node knows the secret's hash alone."""

from __future__ import annotations

import re
from typing import Final

from holdfast.core import key
from holdfast.core.refusal import Refused
from holdfast.doors.desk import NOBODY, Desk, Visitor, visitor_of
from holdfast.ports import Clock

TOKEN: Final = re.compile(r"hf_([0-9a-f]{16})_([A-Za-z0-9_-]{22,86})")


async def identify(desk: Desk, clock: Clock, token: str | None) -> Visitor | Refused:
    """Who shows this token; nobody where none is shown. Nothing of the token gets into the refusal."""
    if token is None:
        return NOBODY
    parts = TOKEN.fullmatch(token)
    if parts is None:
        return Refused("SEC-001", "this is not a token", "a token begins with hf_", "Unauthorized")
    id_, secret = parts.groups()
    now_ms = max(clock.wall_ms(), desk.source.standing().tip.time_ms)
    found = await desk.source.ask(lambda state: key.whose(state, id_, secret.encode(), now_ms))
    return found if isinstance(found, Refused) else visitor_of(found)
