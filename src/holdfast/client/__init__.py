"""What a requester imports: `Client` and `AsyncClient`, `JobRequest`, typed answers, and an exception for each refusal.

The classes are resolved when they are first used: a node that names its sockets does not load an HTTP client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.client.errors import JobEnded, NodeRefused, NodeUnreachable, WaitTimeout
from holdfast.client.sockets import HTTP_SOCKET_NAME, SOCKET_NAME

if TYPE_CHECKING:
    from holdfast.client.asynchronous.client import AsyncClient
    from holdfast.client.job_lines import JobRequest
    from holdfast.client.synchronous.client import Client

__all__ = [
    "HTTP_SOCKET_NAME",
    "SOCKET_NAME",
    "AsyncClient",
    "Client",
    "JobEnded",
    "JobRequest",
    "NodeRefused",
    "NodeUnreachable",
    "WaitTimeout",
]


def __getattr__(name: str) -> Any:
    if name == "AsyncClient":
        from holdfast.client.asynchronous.client import AsyncClient  # noqa: PLC0415

        return AsyncClient
    if name == "Client":
        from holdfast.client.synchronous.client import Client  # noqa: PLC0415

        return Client
    if name == "JobRequest":
        from holdfast.client.job_lines import JobRequest  # noqa: PLC0415

        return JobRequest
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
