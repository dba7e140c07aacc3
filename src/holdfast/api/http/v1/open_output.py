"""Output bytes, from the tier that holds them (RES-009)."""

from __future__ import annotations

from holdfast.api.node_access import NodeAccess, Principal
from holdfast.api.rpc.methods.results import open_archived
from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.result import result_digest
from holdfast.core.result.model import Result
from holdfast.engine import queries
from holdfast.ports import OutputReader


async def open_output(access: NodeAccess, principal: Principal, result: Result) -> OutputReader | Refused:
    """The bytes, hash-checked: from the hot store, the disk or the archive. ResultPruned where none has them."""
    raw = await queries.hot_output(access.source, result)
    if raw is not None:
        if result_digest(raw) != result.result_digest:
            raise Corrupt("RES-004", f"the hot bytes of {result.task_id.hex()} do not match their digest")
        return _InMemory(raw)
    opened = await access.blobs.open_output(result.result_digest) if access.blobs is not None else None
    return opened if opened is not None else await open_archived(access, principal, result)


class _InMemory:
    """Bytes of the hot store."""

    def __init__(self, raw: bytes) -> None:
        self.size, self._raw = len(raw), raw

    async def read(self, offset: int, length: int) -> bytes:
        return self._raw[offset : offset + length]

    async def close(self) -> None:
        pass
