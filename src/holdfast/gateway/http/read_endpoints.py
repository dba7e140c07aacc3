"""/resolve and /binary: the data of an item, or the whole item, in ranges, every byte checked before it is sent."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final

import structlog

from holdfast.api.http.responses import NOSNIFF, Header
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.gateway.http.replies import CORS, HttpFault, error
from holdfast.gateway.http.request import Request
from holdfast.gateway.item_store import ItemStore
from holdfast.gateway.key_file import KeyFile
from holdfast.gateway.metrics import GatewayMetrics
from holdfast.gateway.records import DEFAULT_TYPE, ItemRecord, content_type_of
from holdfast.wire.ans104 import is_item_id

_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
SANDBOX: Final[Header] = (b"content-security-policy", b"sandbox")
"""Items are other people's bytes: a browser runs nothing of them as a page of this server."""
_log = structlog.get_logger()


class ReadEndpoints:
    """The read side of the API."""

    def __init__(self, store: ItemStore, keys: KeyFile, metrics: GatewayMetrics) -> None:
        self._store, self._keys, self._metrics = store, keys, metrics

    async def resolve(self, request: Request) -> None:
        await self._serve(request, is_whole_item=False)

    async def binary(self, request: Request) -> None:
        await self._serve(request, is_whole_item=True)

    async def _serve(self, request: Request, *, is_whole_item: bool) -> None:
        id_ = request.parts[-1]
        record, is_public = await self._find(request, id_)
        skipped = 0 if is_whole_item else len(record.header)
        total = record.size - skipped
        etag = f'"{id_}{".ans104" if is_whole_item else ""}"'.encode()
        content_type = DEFAULT_TYPE if is_whole_item else content_type_of(record.parsed())
        headers: list[Header] = [
            (b"content-type", content_type.encode("latin-1")),
            (b"accept-ranges", b"bytes"),
            (b"etag", etag),
            (b"cache-control", b"public, max-age=31536000, immutable" if is_public else b"private, no-store"),
            NOSNIFF,
            SANDBOX,
            *CORS,
        ]
        if request.header("if-none-match") == etag.decode():
            await _send_head(request, 304, headers)
            return
        wanted = request.header("range") or request.query("range")
        start, end = 0, total
        if wanted is not None:
            start, end = _parse_range(wanted, total)
            headers.append((b"content-range", b"bytes %d-%d/%d" % (start, end - 1, total)))
        headers.append((b"content-length", b"%d" % (end - start)))
        status = 200 if wanted is None else 206
        if request.method == "HEAD":
            await _send_head(request, status, headers)
            return
        pieces = self._pieces(id_, record, start + skipped, end + skipped)
        await self._send(request, id_, status, headers, pieces)

    async def _find(self, request: Request, id_: str) -> tuple[ItemRecord, bool]:
        """The item, if whoever asks may read it; else it does not exist for them."""
        reader = request.reader(self._keys)
        try:
            record = await self._store.record_of(id_) if is_item_id(id_) else None
            is_public = record is not None and await self._store.is_public(id_)
            if record is None or not (
                is_public or await self._store.may_read(id_, None if reader is None else reader.id)
            ):
                raise HttpFault(error(404, "dataitem not found"))
        except Corrupt as fault:
            raise self._damaged(id_, fault) from None
        except Unavailable as fault:
            raise HttpFault(error(503, f"the store is not available: {fault.message}")) from None
        return record, is_public

    async def _pieces(self, id_: str, record: ItemRecord, start: int, end: int) -> AsyncIterator[bytes]:
        """Bytes of the whole item: of its header, then of its data."""
        cut = len(record.header)
        if start < cut:
            yield record.header[start:end]
        if end > cut:
            async for piece in self._store.read(id_, record, max(0, start - cut), end - cut):
                yield piece

    async def _send(
        self, request: Request, id_: str, status: int, headers: list[Header], pieces: AsyncIterator[bytes]
    ) -> None:
        """The head goes out with the first checked piece: damage at the beginning is still an answer."""
        has_begun = False
        try:
            async for piece in pieces:
                if not has_begun:
                    has_begun = True
                    await request.send({"type": "http.response.start", "status": status, "headers": headers})
                await request.send_piece(piece)
                self._metrics.bytes_out += len(piece)
        except (Corrupt, Unavailable) as fault:
            damaged = self._damaged(id_, fault)
            if has_begun:
                raise ConnectionAbortedError(str(fault)) from None  # the client sees that the body ends early
            raise damaged from None
        if not has_begun:
            await request.send({"type": "http.response.start", "status": status, "headers": headers})
        await request.send({"type": "http.response.body", "body": b""})

    def _damaged(self, id_: str, fault: Corrupt | Unavailable) -> HttpFault:
        self._metrics.faults["integrity" if isinstance(fault, Corrupt) else "store"] += 1
        _log.error("item_unreadable", id=id_, reason=fault.message, hint=fault.hint)
        return HttpFault(error(500, "the stored dataitem cannot be read"))


async def _send_head(request: Request, status: int, headers: list[Header]) -> None:
    await request.send({"type": "http.response.start", "status": status, "headers": headers})
    await request.send({"type": "http.response.body", "body": b""})


def _parse_range(wanted: str, total: int) -> tuple[int, int]:
    """First byte, and the one after the last; ends in 416 where it is none of this item."""
    match = _RANGE.fullmatch(wanted if wanted.startswith("bytes=") else f"bytes={wanted}")
    first, last = match.groups() if match else ("", "")
    start, end = total, total
    if first:
        start, end = int(first), min(total, int(last) + 1) if last else total
    elif last:
        start = max(0, total - int(last))
    if start >= end:
        raise HttpFault(error(416, "range not satisfiable", (b"content-range", b"bytes */%d" % total)))
    return start, end
