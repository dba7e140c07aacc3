"""Download of an input (JOB-003): for the provider that holds its job's lease, after the ACK, from an offset on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from holdfast.api.grpc.services.agent_context import AgentContext
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import LeaseId
from holdfast.engine.queries.jobs import CheckInput
from holdfast.ports import OutputReader
from holdfast.wire import signed_messages
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb

PART_BYTES: Final = 256 << 10


async def get_input(agents: AgentContext, request: pb.GetInputRequest) -> AsyncIterator[pb.GetInputResponse | Refused]:
    """Parts of the input, in order. The agent hashes them all."""
    agents.check_owner()
    reader = await _open(agents, request)
    if isinstance(reader, Refused):
        yield reader
        return
    try:
        offset = request.offset
        while part := await reader.read(offset, PART_BYTES):
            offset += len(part)
            yield pb.GetInputResponse(part=part)
    finally:
        await reader.close()


async def _open(agents: AgentContext, request: pb.GetInputRequest) -> OutputReader | Refused:
    if len(request.lease_id) != 32:
        return Refused("JOB-003", "lease_id: not 32 bytes", name="InvalidParams")
    signed = signed_messages.to_sign_get_input(request.lease_id, request.offset)
    if refusal := await agents.why_not_signed(request.public, signed, request.signature):
        return refusal
    holder, now_ms = agents.provider_of(request.public), agents.engine.now_ms()
    grant = await agents.engine.query_durable(CheckInput(LeaseId(request.lease_id), holder, now_ms))
    if grant.refusal is not None:
        return grant.refusal
    reader = await agents.node.inputs.open(grant.digest) if agents.node.inputs is not None else None
    return reader or Refused("JOB-003", f"the input {grant.digest.hex()} is not here", "try again later", "Unavailable")
