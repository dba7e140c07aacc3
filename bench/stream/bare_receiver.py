"""The least that a durable receiver can do: it appends what a message holds to a file, syncs it and acks.

`python -m bench.stream.bare_receiver FILE PORT` speaks `holdfast.evidence.v1` and `retrovue.evidence.v1` as far as a sender
needs it, checks nothing and keeps no watermarks over a restart; until its standard input ends.
"""  # noqa: E501

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2 as pb
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2_grpc
from holdfast.wire.gen.retrovue.evidence.v1 import evidence_pb2 as old
from holdfast.wire.gen.retrovue.evidence.v1 import evidence_pb2_grpc as old_grpc

CREDIT = 4 << 20


class BareReceiver(evidence_pb2_grpc.EvidenceServiceServicer, old_grpc.ExecutionEvidenceServiceServicer):
    """Both services over one file."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def _append_synced(self, raw: bytes) -> None:
        os.write(self._file, raw)
        os.fdatasync(self._file)

    async def Stream(self, requests: AsyncIterator[pb.StreamRequest], _: Any) -> AsyncIterator[pb.StreamResponse]:  # noqa: N802
        yield pb.StreamResponse(challenge=pb.Challenge(nonce=b"n" * 32))
        async for request in requests:
            mark, lines = 0, request.records.lines
            if lines:
                await asyncio.to_thread(self._append_synced, b"\n".join(lines))
                mark = request.records.first_sequence + len(lines) - 1
            yield pb.StreamResponse(ack=pb.Ack(acked_sequence=mark, credit_bytes=CREDIT))

    async def EvidenceStream(  # noqa: N802
        self, requests: AsyncIterator[old.EvidenceFromAir], _: Any
    ) -> AsyncIterator[old.EvidenceAckFromCore]:
        async for message in requests:
            if message.sequence:
                await asyncio.to_thread(self._append_synced, message.SerializeToString())
            whose = {"channel_id": message.channel_id, "playout_session_id": message.playout_session_id}
            yield old.EvidenceAckFromCore(acked_sequence=message.sequence, **whose)


async def main(file: str, port: str) -> None:
    server, bare = grpc.aio.server(options=[("grpc.max_receive_message_length", 16 << 20)]), BareReceiver(Path(file))
    evidence_pb2_grpc.add_EvidenceServiceServicer_to_server(bare, server)  # type: ignore[no-untyped-call]
    old_grpc.add_ExecutionEvidenceServiceServicer_to_server(bare, server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print("up", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
