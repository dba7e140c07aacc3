"""The form of an upload, read as a stream with all the quirks of load-s3-agent.

The last `file` counts, and its part's type overwrites every type before it, also with none. `content_type` counts only
where no type is known when it comes. `tags` is JSON. Other fields are ignored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.gateway.agent_tags import TAGS_FIELD_BYTES, CustomTag, parse_tags
from holdfast.gateway.http.replies import HttpFault, error
from holdfast.gateway.multipart_form import BadForm, FormEvent, FormReader, PartBegins, PartData
from holdfast.gateway.spooled_data import SignedItemReader, SpooledData
from holdfast.gateway.uploads import Uploaded

TYPE_BYTES_MAX: Final = 1_024
_READ_FAULTS: Final = {
    "file": "failed to read file data",
    "content_type": "failed to read content type",
    "tags": "failed to read tags field",
}
_TEXT_MAX: Final = {"content_type": TYPE_BYTES_MAX, "tags": TAGS_FIELD_BYTES}


class UploadForm:
    """One upload's fields. `discard` it in any case: it may hold a file."""

    def __init__(self, new_data: Callable[[], SpooledData], *, is_signed: bool, has_tags: bool, bytes_max: int) -> None:
        self._new_data, self._is_signed, self._has_tags, self._bytes_max = new_data, is_signed, has_tags, bytes_max
        self._data: SpooledData | None = None
        self._signed: SignedItemReader | None = None
        self._fault: Refused | None = None
        self._content_type: str | None = None
        self._tags: list[CustomTag] = []
        self._part = ""
        self._text = bytearray()
        self._file_bytes = 0

    async def read(self, reader: FormReader, body: AsyncIterator[bytes]) -> Uploaded:
        """Everything that was sent, checked in the order in which the agent does."""
        try:
            async for piece in body:
                for event in reader.feed(piece):
                    await self._handle(event)
        except BadForm:
            raise HttpFault(error(400, self._read_fault())) from None
        if not reader.is_complete:
            raise HttpFault(error(400, self._read_fault()))
        return await self._finish()

    async def discard(self) -> None:
        if self._data is not None:
            await self._data.discard()

    async def _handle(self, event: FormEvent) -> None:
        if isinstance(event, PartBegins):
            self._part = event.name
            self._text.clear()
            if event.name == "file":
                await self._begin_file(event.content_type)
        elif isinstance(event, PartData):
            await self._take(event.data)
        else:
            self._end_part()

    async def _begin_file(self, content_type: str | None) -> None:
        await self.discard()
        self._data, self._fault, self._file_bytes = self._new_data(), None, 0
        self._signed = SignedItemReader(self._data) if self._is_signed else None
        self._content_type = content_type

    async def _take(self, data: bytes) -> None:
        if self._part == "file" and self._data is not None:
            self._file_bytes += len(data)
            if self._file_bytes > self._bytes_max:
                raise HttpFault(error(413, f"file size exceeds limit - {self._bytes_max} bytes"))
            if self._signed is None:
                await self._data.add(data)
            elif self._fault is None:
                self._fault = await self._signed.add(data)
        elif (most := _TEXT_MAX.get(self._part)) is not None:
            self._text += data
            if len(self._text) > most:
                raise HttpFault(error(400, self._read_fault()))

    def _end_part(self) -> None:
        if self._part in _TEXT_MAX:
            try:
                value = self._text.decode("utf-8")
            except UnicodeDecodeError:
                raise HttpFault(error(400, self._read_fault())) from None
            if self._part == "tags":
                self._tags = self._parse_tags(value)
            elif self._content_type is None:
                self._content_type = value
        self._part = ""

    async def _finish(self) -> Uploaded:
        if self._data is None:
            raise HttpFault(error(400, "no file data provided"))
        if self._is_signed and self._tags:
            raise HttpFault(error(400, SIGNED_WITH_TAGS))
        await self._data.finish()
        header = None
        if self._signed is not None:
            parsed = self._fault or self._signed.finish()
            if isinstance(parsed, Refused):
                raise HttpFault(error(500, f"failed to store file: {parsed.message}"))
            header = parsed
        return Uploaded(self._data, header, _clean_type(self._content_type), self._tags)

    def _parse_tags(self, value: str) -> list[CustomTag]:
        """At the end of the part, as the agent does: a later field does not excuse a bad one."""
        if not self._has_tags:
            return []
        tags = parse_tags(value.encode("utf-8"))
        if isinstance(tags, Refused):
            raise HttpFault(error(400, tags.message))
        return tags

    def _read_fault(self) -> str:
        return _READ_FAULTS.get(self._part, "invalid multipart data")


def _clean_type(content_type: str | None) -> str | None:
    """A type that a tag can hold: without blanks around it, and not longer than the agent's own tags."""
    cleaned = (content_type or "").strip()
    return cleaned if 0 < len(cleaned.encode("utf-8")) <= TYPE_BYTES_MAX else None


SIGNED_WITH_TAGS: Final = (
    "custom tags are not supported when uploading signed dataitems,"
    " the dataitems tags will be extracted and appied instead"
)
"""The agent's own words, its spelling included: clients compare them."""
