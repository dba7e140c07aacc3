"""Uploads inputs in parts (JOB-003): an upload that broke off goes on where the node says that it is."""

from __future__ import annotations

import asyncio
from typing import Final

import httpx

from holdfast.client.asynchronous.transport import AsyncTransport
from holdfast.client.errors import NodeRefused
from holdfast.client.input_source import Input, InputSource
from holdfast.client.replies import ProxyAnswer
from holdfast.client.retries import RetryDelay, is_transient

INPUTS_PATH: Final = "/v1/inputs/"
CREATED: Final = 201


class AsyncInputUploads:
    """Inputs of one account."""

    def __init__(self, transport: AsyncTransport, caller: str | None) -> None:
        self._transport, self._params = transport, {} if caller is None else {"caller": caller}

    async def upload(self, given: Input, media_type: str) -> dict[str, object]:
        """What stands in the payload of a job for these bytes, once the node has all of them."""
        with InputSource(given) as source:
            delay, offset = self._transport.delay(), None
            while True:
                try:
                    if offset is None:
                        offset = await self._offset(source)
                    offset = await self._send_parts(source, offset, delay)
                    return {"digest": source.digest, "size": source.size, "media_type": media_type}
                except (httpx.TransportError, ProxyAnswer) as error:
                    fault: Exception = error
                except NodeRefused as refusal:
                    if not is_transient(refusal):
                        raise
                    fault = refusal
                offset = None  # how much of the last part has come, only the node knows
                await asyncio.sleep(delay.next_s(fault))

    async def _offset(self, source: InputSource) -> int:
        path = INPUTS_PATH + source.digest
        async with self._transport.stream("HEAD", path, headers={}, params=self._params) as response:
            return int(response.headers.get("upload-offset", 0))

    async def _send_parts(self, source: InputSource, offset: int, delay: RetryDelay) -> int:
        path, is_complete = INPUTS_PATH + source.digest, False
        while not is_complete and (offset < source.size or source.size == 0):
            part = source.part(offset)
            last = offset + len(part) - 1
            headers = {"Content-Range": f"bytes {offset}-{last}/{source.size}"} if part else {}
            async with self._transport.stream(
                "PUT", path, headers=headers, params=self._params, content=part
            ) as response:
                is_complete = response.status_code == CREATED
            offset += len(part)
            delay.reset()
        return offset
