"""Rotating a provider's key at its node (PRV-003): signed by the old and the new key, and safe to repeat."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.base.errors import Refused, Unavailable
from holdfast.ports import Signer
from holdfast.shipping.node_connection import NodeConnection, RpcFault, await_call, describe_fault, refusal_of
from holdfast.spool import undelivered_sessions
from holdfast.wire import signed_messages
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb

CALL_S = 30.0


def why_not_rotate(data: Path, provider_id: bytes) -> Refused | None:
    """The node must have all evidence that the old key has signed before the key is rotated."""
    undelivered = undelivered_sessions(data / "spool", provider_id.hex())
    if not undelivered:
        return None
    records = sum(status.last - status.acked for status in undelivered)
    message = f"{records} records of {len(undelivered)} sessions are not delivered to the node yet"
    return Refused("PRV-003", message, "run the agent until they are, then stop it and rotate the key")


async def rotate_key(connection: NodeConnection, old: Signer, new: Signer) -> bytes | Refused:
    """Declare the rotation; the provider's id. A repeat after a lost answer succeeds: the new key is known then."""
    answer = await _declare_rotation(connection, old, new)
    if isinstance(answer, Refused) and answer.name == "Unauthorized":
        again = await _declare_rotation(connection, new, new)
        return answer if isinstance(again, Refused) else again
    return answer


async def _declare_rotation(connection: NodeConnection, signer: Signer, new: Signer) -> bytes | Refused:
    try:
        request_nonce = pb.GetChallengeRequest(public=signer.public)
        challenge = await await_call(connection.provider.GetChallenge(request_nonce, timeout=CALL_S))
        declaration = signed_messages.Declaration(
            nonce=challenge.nonce, public=signer.public, act="rotate", new_public=new.public
        )
        body = signed_messages.pack_message(declaration)
        signed = signed_messages.to_sign_declaration(body)
        request = pb.DeclareRequest(body=body, signature=signer.sign(signed), new_signature=new.sign(signed))
        answer = await await_call(connection.provider.Declare(request, timeout=CALL_S))
    except RpcFault as fault:
        refusal = refusal_of(fault)
        if refusal is None:
            raise Unavailable(
                "PRV-003", describe_fault(fault), "check that the node is up, then run it again"
            ) from fault
        return refusal
    return bytes(answer.provider_id)
