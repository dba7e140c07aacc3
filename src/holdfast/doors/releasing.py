"""What a dead letter asked for, tried again (EVD-007): a result whose bytes were not here when its record came."""

from __future__ import annotations

from typing import Final

from holdfast.core.evidence.letters import DeadLetter
from holdfast.core.proof.acts import Submit
from holdfast.core.refusal import Refused
from holdfast.doors.completing import completion
from holdfast.doors.desk import Desk
from holdfast.doors.records import NO_OUTPUT, completion_in

_SETTLE: Final = "settle it instead"


async def ask_again(desk: Desk, letter: DeadLetter, raw: bytes | None) -> Submit | Refused:
    """The command, or why there is none; its signature was good when the record came."""
    if letter.name != NO_OUTPUT or desk.blobs is None:
        says = f"a record that is {letter.name} asks for nothing that could be tried again"
        return Refused("EVD-007", says, _SETTLE, "InvalidParams")
    proof = completion_in(raw) if raw is not None and len(raw) == letter.size else None
    if proof is None:
        return Refused("EVD-007", f"the bytes of dead letter {letter.event} are not here any more", _SETTLE)
    return await completion(desk.blobs, letter.provider_id, proof)
