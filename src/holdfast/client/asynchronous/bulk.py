"""Enqueues many jobs over the bulk route, as fast as the node has room for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

import httpx
import msgspec

from holdfast.client.answers import JobReceipt
from holdfast.client.asynchronous.transport import AsyncTransport
from holdfast.client.errors import NodeRefused
from holdfast.client.job_lines import JobRequest, JobsRefused, encode_groups
from holdfast.client.refusals import refusal_from
from holdfast.client.replies import ProxyAnswer, typed
from holdfast.client.retries import FULL, is_transient

BULK_PATH: Final = "/v1/jobs:bulk"
NDJSON: Final = {"Content-Type": "application/x-ndjson"}
Progress = Callable[[int], None]
"""Called with the number of jobs that are in the queue."""


class AsyncBulk:
    """One call of `enqueue_many`."""

    def __init__(self, transport: AsyncTransport, progress: Progress | None) -> None:
        self._transport, self._progress = transport, progress
        self._receipts: dict[int, JobReceipt] = {}
        self._refused: dict[int, NodeRefused] = {}

    async def enqueue(self, requests: Iterable[JobRequest]) -> list[JobReceipt]:
        for group in encode_groups(requests):
            await self._enqueue_group(group)
            if self._refused:
                raise JobsRefused(self._receipts, self._refused)
        return [self._receipts[place] for place in sorted(self._receipts)]

    async def _enqueue_group(self, lines: dict[int, bytes]) -> None:
        """Until each line has its receipt or its refusal. Lines that lost their answer, or wait for room, go again."""
        delay, fault = self._transport.delay(), None
        while lines:
            before = len(lines)
            try:
                fault = await self._send(lines)
            except (httpx.TransportError, ProxyAnswer) as error:
                fault = error
            except NodeRefused as refusal:
                if not is_transient(refusal):
                    raise
                fault = refusal
            if len(lines) < before:
                delay.reset()
            if lines:
                await asyncio.sleep(delay.next_s(fault or EOFError("the answer broke off")))

    async def _send(self, lines: dict[int, bytes]) -> Exception | None:
        """Send the lines and drop those that are answered for good; why the last of the others waits."""
        places, body, fault, rest = list(lines), b"\n".join(lines.values()), None, b""
        async with self._transport.stream("POST", BULK_PATH, headers=NDJSON, content=body) as response:
            async for chunk in response.aiter_raw():
                *answers, rest = (rest + chunk).split(b"\n")
                for answer in answers:
                    message = msgspec.json.decode(answer)
                    fault = self._take(places[message["line"] - 1], message, lines) or fault
                if self._progress is not None:
                    self._progress(len(self._receipts))
        return fault

    def _take(self, place: int, message: dict[str, Any], lines: dict[int, bytes]) -> NodeRefused | None:
        if "error" in message:
            refusal = refusal_from(message["error"])
            if is_transient(refusal) or refusal.name in FULL:
                return refusal
            self._refused[place] = refusal
        else:
            self._receipts[place] = typed(JobReceipt, message["result"])
        del lines[place]
        return None
