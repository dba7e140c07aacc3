"""Conditions and ranges of a request for bytes (RFC 9110, sections 13 and 14): one range, or everything."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from holdfast.api.http.responses import Header

_RANGE: Final = re.compile(rb"bytes=(\d{0,19})-(\d{0,19})")
OK, PARTIAL_CONTENT, NOT_MODIFIED, RANGE_NOT_SATISFIABLE = 200, 206, 304, 416


class ByteAnswer(msgspec.Struct, frozen=True):
    """Which bytes are sent, under which status."""

    status: int
    start: int = 0
    length: int = 0

    def headers(self, size: int, etag: bytes) -> list[Header]:
        headers = [(b"etag", etag), (b"accept-ranges", b"bytes")]
        if self.status == RANGE_NOT_SATISFIABLE:
            return [*headers, (b"content-range", b"bytes */%d" % size)]
        if self.status == PARTIAL_CONTENT:
            span = b"bytes %d-%d/%d" % (self.start, self.start + self.length - 1, size)
            return [*headers, (b"content-range", span)]
        return headers


def choose_bytes(headers: list[Header], size: int, etag: bytes) -> ByteAnswer:
    """Several ranges, an unknown unit or a malformed range are ignored: the answer is everything, as the RFC allows."""
    known = dict(headers)
    if _names(known.get(b"if-none-match", b""), etag):
        return ByteAnswer(NOT_MODIFIED)
    everything = ByteAnswer(OK, 0, size)
    match = _RANGE.fullmatch(known.get(b"range", b"").strip())
    if match is None or known.get(b"if-range", etag) != etag:
        return everything
    first, last = match[1], match[2]
    if first:
        start, end = int(first), min(int(last), size - 1) if last else size - 1
        if last and int(last) < start:
            return everything
    elif last:
        start, end = max(0, size - int(last)), size - 1
    else:
        return everything
    if start > end:
        return ByteAnswer(RANGE_NOT_SATISFIABLE)
    return ByteAnswer(PARTIAL_CONTENT, start, end - start + 1)


def _names(condition: bytes, etag: bytes) -> bool:
    tags = [tag.strip().removeprefix(b"W/") for tag in condition.split(b",")]
    return etag in tags or b"*" in tags
