"""The standard gRPC health service: SERVING while the node works, NOT_SERVING from the moment it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from grpc_health.v1 import health, health_pb2

from holdfast.api.grpc.call_wrapping import Context

REFRESH_EVERY_S: Final = 0.25
"""For clients that watch; a client that checks gets the status of that moment."""
_STATUS: Final = {
    True: health_pb2.HealthCheckResponse.SERVING,
    False: health_pb2.HealthCheckResponse.NOT_SERVING,
}


class HealthService(health.aio.HealthServicer):  # type: ignore[name-defined, misc]
    """The status of the node (the empty name) and of each service: it is the same for all."""

    def __init__(self, services: Iterable[str], is_serving: Callable[[], bool]) -> None:
        super().__init__()
        self._services = ("", *services)
        self._is_serving = is_serving

    async def Check(self, request: Any, context: Context) -> Any:  # noqa: N802 - the name of the method
        await self.refresh()
        return await super().Check(request, context)

    async def refresh(self) -> None:
        """Set the current status, and notify the clients that watch."""
        status = _STATUS[self._is_serving()]
        for service in self._services:
            await self.set(service, status)

    async def refresh_forever(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(REFRESH_EVERY_S)
