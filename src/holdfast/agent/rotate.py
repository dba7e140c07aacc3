"""Changing a provider's key at its node (PRV-003): signed by the old key and by the new one, and safe to say again."""

from __future__ import annotations

from pathlib import Path

from holdfast.agent.dial import Dial, Fault, answered, refusal_of, said
from holdfast.agent.settings import Signer
from holdfast.core.refusal import Refused, Unavailable
from holdfast.spool import undelivered
from holdfast.wire import acts
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb

CALL_S = 30.0


def why_not_now(data: Path, provider_id: bytes) -> Refused | None:
    """What the old key has signed must be with the node before another key counts."""
    left = undelivered(data / "spool", provider_id.hex())
    if not left:
        return None
    records = sum(each.last - each.acked for each in left)
    says = f"{records} records of {len(left)} sessions are not with the node yet"
    return Refused("PRV-003", says, "run the agent until they are, then stop it and change the key")


async def rotate(dial: Dial, old: Signer, new: Signer) -> bytes | Refused:
    """Tell the node; the provider's id. Where it was told before and the answer was lost, that is found out."""
    answer = await _declared(dial, old, new)
    if isinstance(answer, Refused) and answer.name == "Unauthorized":
        again = await _declared(dial, new, new)
        return answer if isinstance(again, Refused) else again
    return answer


async def _declared(dial: Dial, signer: Signer, new: Signer) -> bytes | Refused:
    try:
        asked = pb.GetChallengeRequest(public=signer.public)
        challenge = await answered(dial.provider.GetChallenge(asked, timeout=CALL_S))
        told = acts.Declaration(nonce=challenge.nonce, public=signer.public, act="rotate", new_public=new.public)
        body = acts.pack(told)
        signed = acts.to_sign_declaration(body)
        request = pb.DeclareRequest(body=body, signature=signer.sign(signed), new_signature=new.sign(signed))
        answer = await answered(dial.provider.Declare(request, timeout=CALL_S))
    except Fault as fault:
        no = refusal_of(fault)
        if no is None:
            raise Unavailable("PRV-003", said(fault), "is the node up? say it again") from fault
        return no
    return bytes(answer.provider_id)
