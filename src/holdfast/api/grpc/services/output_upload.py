"""Upload of an output (TIER-001): a signed header, parts, an explicit end; the bytes are durable before the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from holdfast.api.grpc.services.agent_context import AgentContext
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Digest, LeaseId
from holdfast.engine.queries.jobs import CheckUpload, CountLiveLeases, FilterLiveLeases
from holdfast.engine.queries.retention import IsWarmDeletePending
from holdfast.ports import Incoming
from holdfast.wire import signed_messages
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb

OUTPUT_BYTES_MAX: Final = 256 << 20
PART_BYTES_MAX: Final = 1 << 20
_BEING_DELETED: Final = Refused(
    "TIER-001", "the node is deleting an older copy of these bytes", "send the output again", "Unavailable"
)
_TRUNCATED: Final = Refused(
    "TIER-001", "the stream ended before the end message", "send the output again", "InvalidRequest"
)


async def put_output(
    agents: AgentContext, requests: AsyncIterator[pb.PutOutputRequest]
) -> pb.PutOutputResponse | Refused:
    """Receive one output. Nothing of it is kept until its end has arrived and its digest is checked."""
    agents.check_owner()
    first = await anext(requests, None)
    if first is None or first.WhichOneof("message") != "header":
        return Refused("TIER-001", "an output begins with its header", "compare the .proto file", "InvalidRequest")
    header = first.header
    if (refusal := await _why_not_upload(agents, header)) is not None:
        return refusal
    lease_id, digest, size = LeaseId(header.lease_id), Digest(header.digest), header.size
    if agents.engine.query_undurable(IsWarmDeletePending(digest)):
        return _BEING_DELETED  # the stored copy may be deleted any moment, so no completion could rely on it
    if agents.output_limit.has_arrived(lease_id, digest) and await _is_held(agents, digest, size):
        return pb.PutOutputResponse(digest=digest, size=size)
    incoming = await agents.blobs.receive((digest, size))
    try:
        answer = await _receive(requests, incoming, digest, size)
    finally:
        await incoming.drop()
    if not isinstance(answer, Refused):
        await agents.blobs.mark_sent(lease_id, digest)
        agents.output_limit.record_arrival(lease_id, digest)
    return answer


async def _is_held(agents: AgentContext, digest: Digest, size: int) -> bool:
    """Read and hashed before it is said: the agent deletes its own copy because of it."""
    return await agents.blobs.size(digest) == size and digest in await agents.blobs.verify([digest])


async def _why_not_upload(agents: AgentContext, header: pb.OutputHeader) -> Refused | None:
    """RCV-001, PRV-003: only the holder of a live lease, with a signed header, may write to the node's disk."""
    if len(header.digest) != 32 or len(header.lease_id) != 32:
        return Refused("TIER-001", "lease_id, digest: not 32 bytes each", name="InvalidParams")
    if header.size > OUTPUT_BYTES_MAX:
        message = f"an output of {header.size} bytes, at most {OUTPUT_BYTES_MAX}"
        return Refused("TIER-001", message, "submit a reference to it instead", "TooLarge")
    signed = signed_messages.to_sign_output(header.lease_id, header.digest, header.size)
    if refusal := await agents.why_not_signed(header.public, signed, header.signature):
        return refusal
    lease_id, digest, holder = LeaseId(header.lease_id), Digest(header.digest), agents.provider_of(header.public)
    if agents.output_limit.must_forget(agents.engine.query_undurable(CountLiveLeases())):
        live = agents.engine.query_undurable(FilterLiveLeases(agents.output_limit.lease_ids))
        agents.output_limit.forget_ended(live)
    check = await agents.engine.query_durable(CheckUpload(lease_id, holder, digest, agents.engine.now_ms()))
    if check.is_repeat:
        agents.output_limit.record_arrival(lease_id, digest)  # it was submitted, so it had arrived
        return None
    return check.refusal or agents.output_limit.why_not_output(lease_id, digest)


async def _receive(
    requests: AsyncIterator[pb.PutOutputRequest], incoming: Incoming, digest: Digest, size: int
) -> pb.PutOutputResponse | Refused:
    received = 0
    async for request in requests:
        match request.WhichOneof("message"):
            case "part":
                received += len(request.part)
                if len(request.part) > PART_BYTES_MAX or received > size:
                    message = f"a part of {len(request.part)} bytes makes {received} of {size}"
                    return Refused("TIER-001", message, f"parts of at most {PART_BYTES_MAX} bytes", "TooLarge")
                await incoming.write(request.part)
            case "end":
                return await _finish(incoming, received, digest, size)
            case _:
                return Refused("TIER-001", "a part or the end was expected", name="InvalidRequest")
    return _TRUNCATED


async def _finish(incoming: Incoming, received: int, digest: Digest, size: int) -> pb.PutOutputResponse | Refused:
    """Durable before the answer; bytes that differ from the header are not kept."""
    if received != size:
        return Refused("TIER-001", f"{received} bytes were received, {size} were announced", name="InvalidParams")
    actual, _ = await incoming.keep()
    if actual != digest:
        message = f"the bytes have the digest {actual.hex()}, {digest.hex()} was announced"
        return Refused("TIER-001", message, name="InvalidParams")
    return pb.PutOutputResponse(digest=digest, size=size)
