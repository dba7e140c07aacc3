"""multipart/form-data as a stream: parts are given out while they arrive, and nothing is kept that is not asked for.

The parser is python-multipart's. A part that never ends, headers without end and text without end are refused early.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

import python_multipart
from python_multipart.exceptions import FormParserError

PARTS_MAX: Final = 64
HEADER_BYTES_MAX: Final = 16 << 10
"""All headers of one part."""


class PartBegins(NamedTuple):
    """The headers of a part have arrived."""

    name: str
    content_type: str | None


class PartData(NamedTuple):
    """Some bytes of the part that began last."""

    data: bytes


class PartEnds(NamedTuple):
    """The part that began last is complete."""


FormEvent = PartBegins | PartData | PartEnds


class BadForm(Exception):
    """These bytes are no multipart form."""


def boundary_of(content_type: str) -> bytes | None:
    """The boundary of a form; None where the header names no form or no boundary."""
    kind, options = python_multipart.multipart.parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    return boundary if kind == b"multipart/form-data" and 1 <= len(boundary) <= 70 else None


class FormReader:
    """Feed it the body; it gives the events in order. `finish` says whether the form was complete."""

    def __init__(self, boundary: bytes) -> None:
        self._events: deque[FormEvent] = deque()
        self._field, self._value = bytearray(), bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._header_bytes = self._parts = 0
        self._is_complete = False
        callbacks: Any = {
            "on_part_begin": self._part_begins,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._header_ends,
            "on_headers_finished": self._headers_end,
            "on_part_data": self._part_data,
            "on_part_end": lambda: self._events.append(PartEnds()),
            "on_end": self._form_ends,
        }
        self._parser = python_multipart.MultipartParser(boundary, callbacks)

    def feed(self, raw: bytes) -> list[FormEvent]:
        try:
            self._parser.write(raw)
        except FormParserError as fault:
            raise BadForm(str(fault)) from fault
        events = list(self._events)
        self._events.clear()
        return events

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    # ------------------------------------------------------------------------------------ from the parser

    def _part_begins(self) -> None:
        self._parts += 1
        self._header_bytes = 0
        self._headers = {}
        if self._parts > PARTS_MAX:
            raise BadForm(f"more than {PARTS_MAX} parts")

    def _header_field(self, raw: bytes, start: int, end: int) -> None:
        self._field += self._measured(raw[start:end])

    def _header_value(self, raw: bytes, start: int, end: int) -> None:
        self._value += self._measured(raw[start:end])

    def _measured(self, raw: bytes) -> bytes:
        self._header_bytes += len(raw)
        if self._header_bytes > HEADER_BYTES_MAX:
            raise BadForm("the headers of a part are too long")
        return raw

    def _header_ends(self) -> None:
        self._headers[bytes(self._field).strip().lower()] = bytes(self._value).strip()
        self._field, self._value = bytearray(), bytearray()

    def _headers_end(self) -> None:
        disposition = self._headers.get(b"content-disposition", b"")
        _, options = python_multipart.multipart.parse_options_header(disposition)
        name, kind = options.get(b"name", b""), self._headers.get(b"content-type")
        self._events.append(PartBegins(name.decode("utf-8", "replace"), kind.decode("latin-1") if kind else None))

    def _part_data(self, raw: bytes, start: int, end: int) -> None:
        if end > start:
            self._events.append(PartData(raw[start:end]))

    def _form_ends(self) -> None:
        self._is_complete = True
