"""Follows server-sent events over lost connections: each event once, from a cursor (EVT-001)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import httpx

from holdfast.client.asynchronous.transport import AsyncTransport
from holdfast.client.errors import NodeRefused, WaitTimeout
from holdfast.client.replies import EventParser, ProxyAnswer, read_end
from holdfast.client.retries import is_transient

IDLE_S: Final = 45.0
"""A node sends something every 15 seconds: after this silence the connection is lost."""
_READ_MIN_S: Final = 0.05
DELETED: Final = "ENG-006"
"""The rule under which a node says that it has not the events after a cursor."""
Frame = tuple[str, str, bytes]
"""Id, name and data of an event."""


class AsyncEventFollower:
    """One subscription."""

    def __init__(
        self, transport: AsyncTransport, path: str, params: dict[str, str], deadline_s: float | None = None
    ) -> None:
        self._transport, self._path, self._params, self._deadline_s = transport, path, params, deadline_s

    async def batches(self, after: str | None) -> AsyncGenerator[list[Frame], None]:
        """Events as they arrive together; ends where the node says that there are no more."""
        delay, is_over = self._transport.delay(), False
        while True:
            try:
                async with aclosing(self._connection(after)) as connection:
                    async for frames in connection:
                        delay.reset()
                        for id_, name, data in frames:
                            after = id_ or after
                            if name == "end" and (reason := read_end(data)).name:
                                raise reason
                            if name == "end":
                                is_over = True
                        if shown := [frame for frame in frames if frame[1] not in ("", "end")]:
                            yield shown
                        if is_over:
                            return
                fault: Exception = EOFError("the stream of events ended")
            except (httpx.TransportError, ProxyAnswer) as error:
                fault = error
            except NodeRefused as refusal:
                if not is_transient(refusal) or refusal.rule == DELETED:
                    raise
                fault = refusal
            if not (isinstance(fault, httpx.ReadTimeout) and self._left_s() > 0):
                self._check_deadline()
                await asyncio.sleep(min(delay.next_s(fault), max(self._left_s(), 0)))

    async def _connection(self, after: str | None) -> AsyncGenerator[list[Frame], None]:
        """Until it is lost, or its patience is longer than the time that is left."""
        read_s, parser = max(_READ_MIN_S, min(IDLE_S, self._left_s())), EventParser()
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after is not None else {})
        async with self._transport.stream(
            "GET", self._path, headers=headers, params=self._params, read_timeout_s=read_s
        ) as response:
            async for chunk in response.aiter_raw():
                yield parser.feed(chunk)
                self._check_deadline()
                if read_s > 2 * self._left_s():
                    return

    def _left_s(self) -> float:
        return IDLE_S if self._deadline_s is None else self._deadline_s - time.monotonic()

    def _check_deadline(self) -> None:
        if self._left_s() <= 0:
            raise WaitTimeout("it has not ended within the time given")
