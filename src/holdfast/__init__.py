"""Holdfast runs compute jobs and keeps everything until the next custodian provably holds it.

`from holdfast import Client, AsyncClient, JobRequest` is what a requester needs. They are resolved when they are first
used, so that `import holdfast.spool` loads nothing of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.__about__ import __version__

if TYPE_CHECKING:
    from holdfast.client import AsyncClient, Client, JobRequest


__all__ = ["AsyncClient", "Client", "JobRequest", "__version__"]


def __getattr__(name: str) -> Any:
    if name in ("AsyncClient", "Client", "JobRequest"):
        import holdfast.client  # noqa: PLC0415

        return getattr(holdfast.client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
