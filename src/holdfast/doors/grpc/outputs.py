"""Handing over output bytes (TIER-001): announced and signed, in parts, with an explicit end, durable when answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from holdfast.core.lease.decide import held_by
from holdfast.core.refusal import Refused
from holdfast.core.state import State
from holdfast.core.values import Digest, LeaseId
from holdfast.doors.grpc.agentdesk import AgentDesk
from holdfast.ports import Incoming
from holdfast.wire import acts
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb

OUTPUT_BYTES_MAX: Final = 256 << 20
PART_BYTES_MAX: Final = 1 << 20
_GOING: Final = Refused(
    "TIER-001", "the node is just letting go of an older copy of these bytes", "send the output again", "Unavailable"
)
_CUT: Final = Refused("TIER-001", "the stream ended before it said so", "send the output again", "InvalidRequest")


async def put_output(at: AgentDesk, requests: AsyncIterator[pb.PutOutputRequest]) -> pb.PutOutputResponse | Refused:
    """One output. Whatever happens before its end was told and its digest checked, nothing of it is kept."""
    at.check_owner()
    first = await anext(requests, None)
    if first is None or first.WhichOneof("message") != "header":
        return Refused("TIER-001", "an output begins with its header", "compare the .proto file", "InvalidRequest")
    header = first.header
    if (no := await _why_not_taken(at, header)) is not None:
        return no
    digest, size = Digest(header.digest), header.size
    if digest in at.engine.state.condemned:
        return _GOING  # what is here may go at once, and until it is gone no completion could rely on it
    if await at.blobs.size(digest) == size:
        return pb.PutOutputResponse(digest=digest, size=size)  # held already: by this agent or another
    incoming = await at.blobs.receive((digest, size))
    try:
        return await _received(requests, incoming, digest, size)
    finally:
        await incoming.drop()


async def _why_not_taken(at: AgentDesk, header: pb.OutputHeader) -> Refused | None:
    """RCV-001, PRV-003: only the holder of a live lease, whose key has signed it, may fill the node's disk."""
    if len(header.digest) != 32 or len(header.lease_id) != 32:
        return Refused("TIER-001", "lease_id and digest: 32 bytes each", name="InvalidParams")
    if header.size > OUTPUT_BYTES_MAX:
        says = f"an output of {header.size} bytes, at most {OUTPUT_BYTES_MAX}"
        return Refused("TIER-001", says, "hand in a reference to it instead", "TooLarge")
    signed = acts.to_sign_output(header.lease_id, header.digest, header.size)
    if no := await at.why_not_signed(header.public, signed, header.signature):
        return no
    lease_id, holder, now_ms = LeaseId(header.lease_id), at.holder(header.public), at.engine.now_ms()

    def why_not(state: State) -> Refused | None:
        found = held_by(state, lease_id, holder, now_ms)
        lease = state.leases.by_id.get(lease_id)
        is_again = lease is not None and (lease.provider_id, lease.submitted) == (holder, header.digest)
        if is_again:
            return None
        return found if isinstance(found, Refused) else at.taken.why_not(lease_id, Digest(header.digest))

    live = at.engine.state.leases.by_id
    at.taken.forget(live, len(live))
    return await at.engine.ask(why_not)


async def _received(
    requests: AsyncIterator[pb.PutOutputRequest], incoming: Incoming, digest: Digest, size: int
) -> pb.PutOutputResponse | Refused:
    got = 0
    async for request in requests:
        match request.WhichOneof("message"):
            case "part":
                got += len(request.part)
                if len(request.part) > PART_BYTES_MAX or got > size:
                    says = f"a part of {len(request.part)} bytes makes {got} of {size}"
                    return Refused("TIER-001", says, f"parts of at most {PART_BYTES_MAX} bytes", "TooLarge")
                await incoming.write(request.part)
            case "end":
                return await _kept(incoming, got, digest, size)
            case _:
                return Refused("TIER-001", "a part or the end was expected", name="InvalidRequest")
    return _CUT


async def _kept(incoming: Incoming, got: int, digest: Digest, size: int) -> pb.PutOutputResponse | Refused:
    """Durable before the answer; what is not as announced is not kept."""
    if got != size:
        return Refused("TIER-001", f"{got} bytes came, {size} were announced", name="InvalidParams")
    found, _ = await incoming.keep()
    if found != digest:
        says = f"the bytes have the digest {found.hex()}, {digest.hex()} was announced"
        return Refused("TIER-001", says, name="InvalidParams")
    return pb.PutOutputResponse(digest=digest, size=size)
