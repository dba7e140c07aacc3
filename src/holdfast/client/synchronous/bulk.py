# Made from asynchronous/bulk.py by tools/generate_sync.py: change that file, then run `make client`.
"""Enqueues many jobs over the bulk route, as fast as the node has room for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import httpx
import msgspec

from holdfast.client.answers import JobReceipt
from holdfast.client.errors import NodeRefused
from holdfast.client.job_lines import JobRequest, JobsRefused, encode_groups
from holdfast.client.refusals import refusal_from
from holdfast.client.replies import ProxyAnswer, typed
from holdfast.client.retries import FULL, is_transient
from holdfast.client.synchronous.transport import Transport

BULK_PATH: Final = "/v1/jobs:bulk"
NDJSON: Final = {"Content-Type": "application/x-ndjson"}
Progress = Callable[[int], None]
"""Called with the number of jobs that are in the queue."""


class Bulk:
    """One call of `enqueue_many`."""

    def __init__(self, transport: Transport, progress: Progress | None) -> None:
        self._transport, self._progress = transport, progress
        self._receipts: dict[int, JobReceipt] = {}
        self._refused: dict[int, NodeRefused] = {}

    def enqueue(self, requests: Iterable[JobRequest]) -> list[JobReceipt]:
        for group in encode_groups(requests):
            self._enqueue_group(group)
            if self._refused:
                raise JobsRefused(self._receipts, self._refused)
        return [self._receipts[place] for place in sorted(self._receipts)]

    def _enqueue_group(self, lines: dict[int, bytes]) -> None:
        """Until each line has its receipt or its refusal. Lines that lost their answer, or wait for room, go again."""
        delay, fault = self._transport.delay(), None
        while lines:
            before = len(lines)
            try:
                fault = self._send(lines)
            except (httpx.TransportError, ProxyAnswer) as error:
                fault = error
            except NodeRefused as refusal:
                if not is_transient(refusal):
                    raise
                fault = refusal
            if len(lines) < before:
                delay.reset()
            if lines:
                time.sleep(delay.next_s(fault or EOFError("the answer broke off")))

    def _send(self, lines: dict[int, bytes]) -> Exception | None:
        """Send the lines and drop those that are answered for good; why the last of the others waits."""
        places, body, fault, rest = list(lines), b"\n".join(lines.values()), None, b""
        with self._transport.stream("POST", BULK_PATH, headers=NDJSON, content=body) as response:
            for chunk in response.iter_raw():
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
