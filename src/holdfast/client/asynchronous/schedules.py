"""Jobs that are enqueued again and again (JOB-014): create, list, get, pause, resume, delete."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from holdfast.client.answers import CancelReply, ScheduleInfo, SchedulePage
from holdfast.client.asynchronous.transport import AsyncTransport
from holdfast.client.asynchronous.uploads import AsyncInputUploads
from holdfast.client.input_source import Input, inline_input
from holdfast.client.replies import typed
from holdfast.core.job.input_ref import OCTETS

PAGE: Final = 100


class AsyncJobSchedules:
    """The schedules of this key's account; an operator names the `caller`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        name: str,
        payload: Mapping[str, Any],
        max_fee: int,
        *,
        cron: str = "",
        interval_ms: int = 0,
        offset_min: int = 0,
        runs: int | None = None,
        until_ms: int | None = None,
        caller: str | None = None,
        input: Input | None = None,
        media_type: str = OCTETS,
    ) -> ScheduleInfo:
        """Enqueue this payload by a cron expression, or at an interval. The same call again is the same schedule.

        `offset_min` is the zone of `cron`, in minutes east of UTC. It ends after `runs` jobs, or at `until_ms`.
        """
        params: dict[str, object] = {"name": name, "max_fee": max_fee, "cron": cron, "interval_ms": interval_ms}
        params |= {"offset_min": offset_min, "runs": runs, "until_ms": until_ms, "caller": caller}
        inline = inline_input(input)
        if inline is not None:
            payload = {**payload, "input": {"media_type": media_type}}
            params["input"] = base64.b64encode(inline).decode()
        elif input is not None:
            payload = {**payload, "input": await AsyncInputUploads(self._transport, caller).upload(input, media_type)}
        answer = await self._transport.call("cap.createSchedule", params | {"payload": payload})
        return typed(ScheduleInfo, answer["schedule"])

    async def list(self, *, caller: str | None = None) -> AsyncGenerator[ScheduleInfo, None]:
        """All schedules in the order of their creation, read in pages."""
        cursor: int | None = 0
        while cursor is not None:
            params = {"caller": caller, "limit": PAGE, "cursor": cursor}
            page = typed(SchedulePage, await self._transport.call("cap.listSchedules", params))
            for schedule in page.schedules:
                yield schedule
            cursor = page.next_cursor

    async def get(self, schedule: str, *, caller: str | None = None) -> ScheduleInfo:
        """One schedule by its id or name, with its last firings."""
        return typed(ScheduleInfo, await self._call("cap.getSchedule", schedule, caller))

    async def pause(self, schedule: str, *, caller: str | None = None, reason: str = "") -> CancelReply:
        """Fire no more until it is resumed; what is due meanwhile is not made up for."""
        return typed(CancelReply, await self._call("cap.pauseSchedule", schedule, caller, reason=reason))

    async def resume(self, schedule: str, *, caller: str | None = None) -> CancelReply:
        """Fire again, from the next time on."""
        return typed(CancelReply, await self._call("cap.resumeSchedule", schedule, caller))

    async def delete(self, schedule: str, *, caller: str | None = None) -> CancelReply:
        """Delete a schedule; its jobs go on. NotFoundError where there is none."""
        return typed(CancelReply, await self._call("cap.deleteSchedule", schedule, caller))

    async def _call(self, method: str, schedule: str, caller: str | None, **more: object) -> Any:
        return await self._transport.call(method, {"schedule": schedule, "caller": caller, **more})
