"""POST /upload and /upload/private: whole items in one request."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import structlog

from holdfast.api.http.responses import Response
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.gateway.http.replies import HttpFault, error, reply, retry_after, text
from holdfast.gateway.http.request import Request
from holdfast.gateway.http.upload_form import UploadForm
from holdfast.gateway.key_file import GatewayKey, KeyFile
from holdfast.gateway.metrics import GatewayMetrics
from holdfast.gateway.multipart_form import FormReader, boundary_of
from holdfast.gateway.records import UploadRecord, is_bucket
from holdfast.gateway.settings import GatewaySettings
from holdfast.gateway.spooled_data import SpooledData
from holdfast.gateway.uploads import QUOTA, Place, Uploaded, Uploads

FORM_BYTES: Final = 1 << 20
"""What a form may take besides its file."""
BUCKET_HEADERS: Final = ("bucket_name", "bucket-name", "x-bucket-name", "bucketname")
NAME_HEADERS: Final = ("x-dataitem-name", "dataitem-name", "dataitemname")
NAME_MAX: Final = 255
_FOLDER: Final = re.compile(r"(?!\.)[A-Za-z0-9_. -]{1,100}(?:/(?!\.)[A-Za-z0-9_. -]{1,100}){0,7}")
_NOT_IN_NAMES: Final = re.compile(r'[/\\:*?"<>|()`]')
_STATUS: Final = {QUOTA: 507}
"""Of refusals of an upload; all others, an invalid item too, are 500, as the agent has it."""
_log = structlog.get_logger()


class UploadEndpoints:
    """The two ways to upload a whole item."""

    def __init__(
        self, uploads: Uploads, keys: KeyFile, settings: GatewaySettings, spool: Path, metrics: GatewayMetrics
    ) -> None:
        self._uploads, self._keys, self._settings, self._spool = uploads, keys, settings, spool
        self._metrics = metrics
        self.running = 0

    async def public(self, request: Request) -> Response:
        key, boundary = self._admit(request)
        record, uploaded = await self._receive(request, key, boundary, None)
        answer: dict[str, object] = {
            "success": True,
            "dataitem_id": record.id,
            "custom_tags": [{"key": tag.key, "value": tag.value} for tag in uploaded.tags],
            "message": "file uploaded successfully",
        }
        if request.flag("offchain-provenance"):
            answer["offchain_provenance_proof"] = await self.prove(key, record.id)
        return reply(answer)

    async def private(self, request: Request) -> Response:
        key, boundary = self._admit(request)
        place = place_of(request)
        record, _ = await self._receive(request, key, boundary, place)
        return reply(private_answer(record, is_signed=request.flag("signed")))

    # ------------------------------------------------------------------------------------ shared with resumable uploads

    async def store(self, key: GatewayKey, uploaded: Uploaded, place: Place | None) -> UploadRecord:
        """Store it, or end the request with the agent's words."""
        try:
            with self._uploads.arriving(key, uploaded.data.size):
                outcome = await self._uploads.why_not_quota(key) or await self._uploads.finish(key, uploaded, place)
        except (Unavailable, Corrupt) as fault:
            self._metrics.faults["store"] += 1
            _log.warning("upload_failed", key=key.id, reason=str(fault))
            raise HttpFault(error(500, f"failed to store file: {fault.message}")) from None
        if isinstance(outcome, Refused):
            self._metrics.refusals[outcome.name] += 1
            prefix = "" if outcome.name == QUOTA else "failed to store file: "
            raise HttpFault(error(_STATUS.get(outcome.name, 500), f"{prefix}{outcome.message}"))
        kind = "private" if place is not None else "raw" if uploaded.header is None else "signed"
        self._metrics.uploads[kind] += 1
        return outcome

    async def prove(self, key: GatewayKey, id_: str) -> str:
        try:
            proof = await self._uploads.prove(key, id_)
        except (Unavailable, Corrupt) as fault:
            raise HttpFault(error(500, f"failed to store file: {fault.message}")) from None
        assert not isinstance(proof, Refused), "the tags of a proof are within every limit"
        return proof

    def new_data(self) -> SpooledData:
        return SpooledData(self._spool, self._settings.memory_bytes)

    # ------------------------------------------------------------------------------------ one request

    def _admit(self, request: Request) -> tuple[GatewayKey, bytes]:
        if (request.content_length or 0) > self._settings.object_bytes_max + FORM_BYTES:
            raise HttpFault(text(413, "length limit exceeded", (b"connection", b"close")))
        boundary = boundary_of(request.header("content-type") or "")
        if boundary is None:
            message = "Invalid `boundary` for `multipart/form-data` request"
            raise HttpFault(text(400, message, (b"connection", b"close")))
        key = request.key(self._keys)
        if self.running >= self._settings.uploads_max:
            self._metrics.refusals["busy"] += 1
            raise HttpFault(error(503, "too many uploads are running", retry_after(1_000)))
        return key, boundary

    async def _receive(
        self, request: Request, key: GatewayKey, boundary: bytes, place: Place | None
    ) -> tuple[UploadRecord, Uploaded]:
        most = self._settings.object_bytes_max
        form = UploadForm(self.new_data, is_signed=request.flag("signed"), has_tags=place is None, bytes_max=most)
        self.running += 1
        try:
            with self._uploads.arriving(key, request.content_length or 0):
                if (why_not := await self._why_not_quota(key)) is not None:
                    raise HttpFault(error(507, why_not.message))
                body = request.body(most + FORM_BYTES, f"file size exceeds limit - {most} bytes")
                uploaded = await form.read(FormReader(boundary), body)
            self._metrics.bytes_in += uploaded.data.size
            return await self.store(key, uploaded, place), uploaded
        finally:
            self.running -= 1
            await form.discard()

    async def _why_not_quota(self, key: GatewayKey) -> Refused | None:
        """Early, before the bytes are read. A quota that cannot be read now is checked again before storing."""
        try:
            return await self._uploads.why_not_quota(key)
        except (Unavailable, Corrupt):
            return None


def place_of(request: Request) -> Place:
    """The bucket of a private upload, from its headers."""
    bucket = request.header(*BUCKET_HEADERS)
    if bucket is None:
        raise HttpFault(error(400, "missing bucket_name header"))
    return checked_place(bucket, request.header("x-folder-name") or "", request.header(*NAME_HEADERS) or "")


def checked_place(bucket: str, folder: str, name: str) -> Place:
    """Names that cannot lead anywhere else."""
    if not is_bucket(bucket):
        raise HttpFault(error(400, "invalid bucket_name header"))
    if folder and not _FOLDER.fullmatch(folder):
        raise HttpFault(error(400, "invalid x-folder-name header"))
    cleaned = "".join(char for char in _NOT_IN_NAMES.sub("_", name) if char.isprintable())
    return Place(bucket, folder, cleaned[:NAME_MAX])


def private_answer(record: UploadRecord, *, is_signed: bool) -> dict[str, object]:
    return {
        "success": True,
        "dataitem_id": record.id,
        "dataitem_name": record.name,
        "folder_name": record.folder,
        "is_signed": is_signed,
        "message": "file uploaded to private bucket successfully",
    }
