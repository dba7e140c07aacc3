"""Downloads outputs (RES-009): resumed where the connection breaks, and never kept unless the digest is right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import httpx

from holdfast.client.answers import JobResult
from holdfast.client.asynchronous.transport import AsyncTransport
from holdfast.client.errors import NodeRefused
from holdfast.client.output_sink import MemoryOutput, OutputFile, OutputSink
from holdfast.client.replies import ProxyAnswer
from holdfast.client.result_check import check_result_proof
from holdfast.client.retries import is_transient
from holdfast.core.base.errors import Corrupt

OUTPUTS_PATH: Final = "/v1/outputs/"
PARTIAL_CONTENT: Final = 206
ShowBytes = Callable[[int, int], None]
"""Told how many bytes of how many have come."""
Verify = bool | Collection[str]
"""False: the digest alone. True: the proof, too, by the proposer that it names; else by one of these, in hex."""


class AsyncDownloads:
    """Outputs of one node."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def read(self, record: JobResult, verify: Verify) -> bytes:
        output = MemoryOutput(record.result_digest, record.result_size)
        await self._fetch(record, output.sink)
        output.sink.check()
        await self._prove(record, verify)
        return output.bytes()

    async def write(self, record: JobResult, path: Path, verify: Verify, progress: ShowBytes | None = None) -> None:
        """To a file. What an earlier try has left is used; if it is wrong, everything comes again, once."""
        await self._prove(record, verify)
        file = OutputFile(path, record.result_digest, record.result_size)
        file.sink.progress = progress
        try:
            had = file.sink.received
            await self._fetch(record, file.sink)
            try:
                file.sink.check()
            except Corrupt:
                file.sink.restart()
                if not had:
                    file.discard()
                    raise
                await self._fetch(record, file.sink)
                file.sink.check()
            file.finish()
        finally:
            file.close()

    async def _fetch(self, record: JobResult, sink: OutputSink) -> None:
        delay = self._transport.delay()
        while not sink.is_full:
            before = sink.received
            try:
                await self._fetch_rest(record, sink)
                fault: Exception = EOFError(f"{sink.received} of {sink.size} bytes came")
            except (httpx.TransportError, ProxyAnswer) as error:
                fault = error
            except NodeRefused as refusal:
                if not is_transient(refusal):
                    raise
                fault = refusal
            if sink.received > before:
                delay.reset()
            if not sink.is_full:
                await asyncio.sleep(delay.next_s(fault))

    async def _fetch_rest(self, record: JobResult, sink: OutputSink) -> None:
        headers = {"Accept-Encoding": "identity"}
        if sink.received:
            headers |= {"Range": f"bytes={sink.received}-", "If-Range": f'"{record.result_digest}"'}
        async with self._transport.stream("GET", OUTPUTS_PATH + record.task_id, headers=headers) as response:
            if sink.received and response.status_code != PARTIAL_CONTENT:
                sink.restart()  # the whole again: the node does not know our part
            async for part in response.aiter_raw():
                sink.write(part)
                if sink.received > sink.size:
                    return

    async def _prove(self, record: JobResult, verify: Verify) -> None:
        if verify is not False:
            proof = await self._transport.call("cap.proveResult", {"task_id": record.task_id})
            check_result_proof(proof, record, () if verify is True else verify)
