"""gRPC's own health service: serving while the node does its work, not serving from the moment it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from grpc_health.v1 import health, health_pb2

from holdfast.doors.grpc.handling import Context

LOOK_EVERY_S: Final = 0.25
"""For those who watch; who asks is told what is true at that moment."""
_STATUS: Final = {
    True: health_pb2.HealthCheckResponse.SERVING,
    False: health_pb2.HealthCheckResponse.NOT_SERVING,
}


class Health(health.aio.HealthServicer):  # type: ignore[name-defined, misc]
    """The status of the whole node (the empty name) and of each service, all the same."""

    def __init__(self, services: Iterable[str], is_serving: Callable[[], bool]) -> None:
        super().__init__()
        self._services = ("", *services)
        self._is_serving = is_serving

    async def Check(self, request: Any, context: Context) -> Any:  # noqa: N802 - the name of the method
        await self.look()
        return await super().Check(request, context)

    async def look(self) -> None:
        """Take over what is true now, and tell those who watch."""
        status = _STATUS[self._is_serving()]
        for service in self._services:
            await self.set(service, status)

    async def look_forever(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY_S)
