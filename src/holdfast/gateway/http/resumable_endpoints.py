"""/uploads: large uploads in several requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import msgspec

from holdfast.api.http.responses import CLOSE, Header, Response
from holdfast.core.base.errors import Refused
from holdfast.gateway.agent_tags import CustomTag
from holdfast.gateway.http.replies import HttpFault, error, reply
from holdfast.gateway.http.request import Request
from holdfast.gateway.http.upload_endpoints import UploadEndpoints, checked_place, private_answer
from holdfast.gateway.http.upload_form import SIGNED_WITH_TAGS
from holdfast.gateway.key_file import KeyFile
from holdfast.gateway.resumable import CONFLICT, LIMITED, NOT_FOUND, TOO_LARGE, ResumableUpload, ResumableUploads
from holdfast.gateway.settings import GatewaySettings
from holdfast.gateway.spooled_data import SignedItemReader, SpooledData
from holdfast.gateway.uploads import Uploaded
from holdfast.ports import Clock
from holdfast.system.strict_json import NOT_JSON, decode_json
from holdfast.wire.ans104 import ItemHeader

_STATUS: Final = {CONFLICT: 409, NOT_FOUND: 404, TOO_LARGE: 413, LIMITED: 429}


class _Begin(msgspec.Struct, frozen=True):
    signed: bool = False
    content_type: str | None = None
    tags: list[CustomTag] = []
    bucket_name: str = ""
    folder_name: str = ""
    dataitem_name: str = ""
    offchain_provenance: bool = False


class ResumableEndpoints:
    """The requests of a resumable upload."""

    def __init__(
        self,
        resumable: ResumableUploads,
        uploads: UploadEndpoints,
        keys: KeyFile,
        settings: GatewaySettings,
        clock: Clock,
    ) -> None:
        self._resumable, self._uploads, self._keys = resumable, uploads, keys
        self._settings, self._clock = settings, clock

    async def begin(self, request: Request) -> Response:
        key = request.key(self._keys)
        try:
            asked = decode_json(await request.json_body() or b"{}", _Begin)
        except NOT_JSON as fault:
            raise HttpFault(error(422, str(fault))) from None
        if asked.signed and asked.tags:
            raise HttpFault(error(400, SIGNED_WITH_TAGS))
        place = checked_place(asked.bucket_name, asked.folder_name, asked.dataitem_name) if asked.bucket_name else None
        upload = ResumableUpload(
            id=self._resumable.new_id(),
            key_id=key.id,
            created_ms=self._clock.wall_ms(),
            signed=asked.signed,
            content_type=asked.content_type,
            tags=list(asked.tags) if place is None else [],
            bucket=place.bucket if place is not None else "",
            folder=place.folder if place is not None else "",
            name=place.name if place is not None else "",
            provenance=asked.offchain_provenance,
        )
        if (refusal := await self._resumable.begin(upload)) is not None:
            raise _fault(refusal)
        return reply({"upload_id": upload.id, "offset": 0}, _offset(0), status=201)

    async def offset(self, request: Request) -> Response:
        upload = await self._upload(request)
        return Response(204, b"", (_offset(await self._resumable.offset(upload.id)),))

    async def append(self, request: Request) -> Response:
        upload = await self._upload(request)
        value = request.header("upload-offset") or ""
        if not (value.isascii() and value.isdigit() and len(value) < 20):
            raise HttpFault(error(400, "missing upload-offset header"))
        most = self._settings.object_bytes_max
        body = request.body(most, f"file size exceeds limit - {most} bytes")
        outcome = await self._resumable.append(upload.id, int(value), body)
        if isinstance(outcome, Refused):
            raise _fault(outcome, _offset(await self._resumable.offset(upload.id)))
        return Response(204, b"", (_offset(outcome),))

    async def finish(self, request: Request) -> Response:
        upload, key = await self._upload(request), request.key(self._keys)
        data = self._uploads.new_data()
        try:
            header = await _read_item(self._resumable.pieces(upload.id), data, is_signed=upload.signed)
            place = checked_place(upload.bucket, upload.folder, upload.name) if upload.bucket else None
            record = await self._uploads.store(key, Uploaded(data, header, upload.content_type, upload.tags), place)
        finally:
            await data.discard()
        answer: dict[str, object] = {
            "success": True,
            "dataitem_id": record.id,
            "custom_tags": [{"key": tag.key, "value": tag.value} for tag in upload.tags],
            "message": "file uploaded successfully",
        }
        if upload.provenance and place is None:
            answer["offchain_provenance_proof"] = await self._uploads.prove(key, record.id)
        await self._resumable.delete(upload.id)
        return reply(answer if place is None else private_answer(record, is_signed=upload.signed))

    async def delete(self, request: Request) -> Response:
        upload = await self._upload(request)
        await self._resumable.delete(upload.id)
        return Response(204, b"", ())

    async def _upload(self, request: Request) -> ResumableUpload:
        upload = await self._resumable.get(request.parts[1], request.key(self._keys).id)
        if isinstance(upload, Refused):
            raise _fault(upload)
        return upload


async def _read_item(pieces: AsyncIterator[bytes], data: SpooledData, *, is_signed: bool) -> ItemHeader | None:
    signed = SignedItemReader(data) if is_signed else None
    async for piece in pieces:
        if signed is None:
            await data.add(piece)
        elif (refusal := await signed.add(piece)) is not None:
            raise HttpFault(error(500, f"failed to store file: {refusal.message}"))
    await data.finish()
    header = None if signed is None else signed.finish()
    if isinstance(header, Refused):
        raise HttpFault(error(500, f"failed to store file: {header.message}"))
    return header


def _offset(offset: int) -> Header:
    return (b"upload-offset", b"%d" % offset)


def _fault(refusal: Refused, *headers: Header) -> HttpFault:
    return HttpFault(error(_STATUS[refusal.name], refusal.message, CLOSE, *headers))
