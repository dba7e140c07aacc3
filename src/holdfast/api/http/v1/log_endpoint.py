"""`GET /v1/jobs/{task_id}/logs`: what running work says, as server-sent events, until the job has ended (EVD-005).

An event's id is `attempt:sequence`; who reconnects with `Last-Event-ID`, to any node, continues there. `?follow=false`
sends what there is. For the keys of the job's caller, operators and auditors (JOB-010). A log is read from the stored
evidence and is there until that is pruned.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Final
from urllib.parse import parse_qs

import msgspec

from holdfast.api.evidence.work_logs import JobLog, LogEntry
from holdfast.api.http.connection import ClientConnection
from holdfast.api.http.gateway import Gateway
from holdfast.api.http.responses import OK, Receive, Response, Scope, Send, send_response
from holdfast.api.http.sse import SSE_HEADERS
from holdfast.api.node_access import OWNERS, READ_LOGS, why_not_allowed
from holdfast.api.visibility import View, view_of
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.core.base.values import TaskId
from holdfast.core.job.model import LIVE_STATES
from holdfast.engine import queries

PREFIX: Final = "/v1/jobs/"
LOOK_S: Final = 2.0
"""How often it is looked whether the job has ended, or has messages that another node received."""
GATHER_S: Final = 0.2
"""Messages that come within this time are read together: the tables are written about as often."""
_PATH: Final = re.compile(r"([0-9a-f]{64})/logs")


class LogEndpoint:
    """Sends the log of one job as it grows."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        try:
            task_id = await self._find(scope)
        except (Unavailable, Corrupt) as fault:
            task_id = self._gateway.refuse(fault)
        if isinstance(task_id, Response):
            await send_response(send, task_id)
            return
        connection: ClientConnection = scope["state"]["connection"]
        left = asyncio.Event()
        connection.on_lost(left.set)
        await send({"type": "http.response.start", "status": OK, "headers": SSE_HEADERS})
        await self._follow(scope, task_id, connection, left, send)

    async def _find(self, scope: Scope) -> TaskId | Response:
        gateway = self._gateway
        principal = await gateway.admit(gateway.token_of(scope), scope)
        if isinstance(principal, Response):
            return principal
        if refusal := why_not_allowed(principal, READ_LOGS, OWNERS):
            return gateway.refuse(refusal)
        if (full := gateway.why_not_stay(scope)) is not None:
            return full
        match = _PATH.fullmatch(scope["path"].removeprefix(PREFIX))
        if match is None:
            refusal = Refused("RPC-001", f"nothing at {scope['path']!r:.80}", "/v1/jobs/TASK_ID/logs", "NotFound")
            return gateway.refuse(refusal)
        task_id = TaskId(bytes.fromhex(match[1]))
        job = await queries.job(gateway.access.source, task_id)
        if job is None or view_of(principal, job) is not View.WHOLE:
            return gateway.refuse(Refused("JOB-007", f"no job {match[1]} of yours", name="NotFound"))
        return task_id

    async def _follow(
        self, scope: Scope, task_id: TaskId, connection: ClientConnection, left: asyncio.Event, send: Send
    ) -> None:
        access = self._gateway.access
        signal, log = access.log_signals.signal_of(task_id), JobLog(access.source, task_id)
        last_id, is_over = _last_event_id(scope), _follow_option(scope) == "false"
        while not left.is_set():
            changed = signal.changed
            is_over = is_over or await self._has_ended(task_id)
            await access.source.wait_tables(access.source.replication_status().tip.last)
            new = _after([entry async for entry in log.new_entries()], last_id)
            last_id = None
            if not await self._send(connection, new, send, is_over=is_over) or is_over:
                return
            await _wait_any(changed, left)
            with suppress(TimeoutError):
                await asyncio.wait_for(left.wait(), GATHER_S)

    async def _send(self, connection: ClientConnection, new: list[LogEntry], send: Send, *, is_over: bool) -> bool:
        """Whether the client still reads."""
        if not await connection.can_send(self._gateway.settings.slow_ms / 1000):
            self._gateway.metrics.disconnected["slow"] += 1
            connection.abort()
            return False
        chunk = b"".join(map(_frame, new)) + (b"event: end\ndata: {}\n\n" if is_over else b"" if new else b":\n\n")
        await send({"type": "http.response.body", "body": chunk, "more_body": not is_over})
        return True

    async def _has_ended(self, task_id: TaskId) -> bool:
        job = await queries.job(self._gateway.access.source, task_id)
        return job is None or job.state not in LIVE_STATES


async def _wait_any(changed: asyncio.Event, left: asyncio.Event) -> None:
    tasks = [asyncio.ensure_future(event.wait()) for event in (changed, left)]
    await asyncio.wait(tasks, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def _last_event_id(scope: Scope) -> str | None:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"last-event-id"), None)


def _after(entries: list[LogEntry], last_id: str | None) -> list[LogEntry]:
    """Those behind the entry that the client has seen last; all where it names none that is known."""
    at = next((at + 1 for at, entry in enumerate(entries) if entry.id == last_id), 0)
    return entries[at:]


def _follow_option(scope: Scope) -> str:
    return str(parse_qs(scope.get("query_string", b"").decode("latin-1")).get("follow", ["true"])[-1])


def _frame(entry: LogEntry) -> bytes:
    return b"id: %s\nevent: log\ndata: %s\n\n" % (entry.id.encode(), msgspec.json.encode(entry))
