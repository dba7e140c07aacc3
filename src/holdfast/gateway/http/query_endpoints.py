"""What is not an upload and not a read: the agent's facts, queries, registry and provenance."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from holdfast.__about__ import __version__
from holdfast.api.http.responses import Response
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.gateway.agent_tags import AGENT_VERSION
from holdfast.gateway.http.replies import TEXT, HttpFault, error, reply, text
from holdfast.gateway.http.request import Request
from holdfast.gateway.item_store import ItemStore, index_row
from holdfast.gateway.key_file import KeyFile
from holdfast.gateway.metrics import GatewayMetrics
from holdfast.gateway.records import is_bucket
from holdfast.gateway.settings import GatewaySettings
from holdfast.gateway.tag_query import TagsRequest, item_json, rfc3339, run_query
from holdfast.gateway.uploads import PROVENANCE_PROTOCOL, Uploads
from holdfast.system.strict_json import NOT_JSON, decode_json
from holdfast.wire.ans104 import is_item_id

T = TypeVar("T", bound=msgspec.Struct)
NOT_FOUND: Final = "dataitem not found"
METRICS_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"


class _OneItem(msgspec.Struct, frozen=True):
    dataitem_id: str


class QueryEndpoints:
    """Answers from the index, and where it does not know from the store."""

    def __init__(
        self,
        store: ItemStore,
        uploads: Uploads,
        keys: KeyFile,
        settings: GatewaySettings,
        metrics: GatewayMetrics,
        address: str,
    ) -> None:
        self._store, self._uploads, self._keys, self._settings = store, uploads, keys, settings
        self._metrics, self._address = metrics, address
        self.url = settings.url

    async def info(self, _: Request) -> Response:
        return reply(
            {
                "status": "running",
                "name": "load-s3-agent",
                "version": AGENT_VERSION,
                "address": self._address,
                "object_size_limit": self._settings.object_bytes_max,
                "presigned_url_expiry": 3600,
                "data_protocol": "Load-S3",
                "hyperbeam_node_url": self.url,
                "holdfast_version": __version__,
            }
        )

    async def health(self, _: Request) -> Response:
        return text(200, "sidecar running")

    async def stats(self, _: Request) -> Response:
        """0 and 0 where the index does not answer, as the agent has it."""
        try:
            items, size = await self._store.index.totals()
        except (Unavailable, Corrupt):
            items, size = 0, 0
        return reply({"total_dataitems_count": items, "total_dataitems_size": size})

    async def tags(self, request: Request) -> Response:
        asked = await _json(request, TagsRequest)
        try:
            answer = await run_query(self._store.index, asked)
        except (Unavailable, Corrupt) as fault:
            self._metrics.faults["index"] += 1
            raise HttpFault(error(500, f"failed to query tags: {fault.message}")) from None
        if isinstance(answer, Refused):
            raise HttpFault(error(400, answer.message))
        return reply(answer)

    async def one_item(self, request: Request) -> Response:
        """From the records: complete also where the index is not."""
        id_ = (await _json(request, _OneItem)).dataitem_id
        if not is_item_id(id_):
            raise HttpFault(error(404, NOT_FOUND))
        record = await self._store.record_of(id_)
        reader = request.reader(self._keys)
        if record is None or not await self._store.may_read(id_, None if reader is None else reader.id):
            raise HttpFault(error(404, NOT_FOUND))
        uploads = await self._store.uploads_of(id_)
        upload = next((each for each in uploads if each.is_public), uploads[0])
        item, _, _ = index_row(upload, record)
        header = record.parsed()
        more = {"data_size": record.data_size, "signature_type": int(header.type), "is_public": upload.is_public}
        return reply({"success": True, **item_json(item, is_full=True), **more})

    async def registry(self, request: Request) -> Response:
        """The items of a bucket, for its own key and for administrators."""
        key, bucket = request.key(self._keys), request.parts[1]
        if not is_bucket(bucket) or (not key.is_admin and await self._store.bucket_owner(bucket) != key.id):
            raise HttpFault(error(401, "invalid API key"))
        entries = await self._store.index.entries(bucket)
        shown = [
            {
                "dataitem_id": f"{entry.folder}/{entry.id}.ans104" if entry.folder else f"{entry.id}.ans104",
                "dataitem_name": entry.name,
            }
            for entry in entries
        ]
        return reply({"success": True, "bucket_name": bucket, "entries": shown})

    async def provenance(self, request: Request) -> Response:
        id_ = request.parts[1]
        proof = await self._uploads.proof_of(id_) if is_item_id(id_) else None
        if proof is None:
            raise HttpFault(error(404, "no provenance record for this dataitem"))
        return reply(
            {
                "success": True,
                "dataitem_id": id_,
                "offchain_provenance_proof": proof.id,
                "data_protocol": PROVENANCE_PROTOCOL,
                "address": self._address,
                "created_at": rfc3339(proof.created_ms),
            }
        )

    async def post(self, request: Request) -> Response:
        """The agent posts to Arweave here, for its own keys; a gateway of one's own has no account to pay for it."""
        if not request.key(self._keys).is_admin:
            raise HttpFault(error(401, "invalid API key"))
        raise HttpFault(error(501, "this gateway does not post to arweave"))

    async def deprecated(self, request: Request) -> Response:
        where = f"{self.url}/resolve/{request.parts[0]}" if is_item_id(request.parts[0]) else f"{self.url}/resolve"
        message = f"method deprecated since v0.7.0 - please access dataitem from '{where}'"
        raise HttpFault(error(403, message))

    async def metrics(self, request: Request) -> Response:
        if not self._settings.public_metrics and not request.key(self._keys).is_admin:
            raise HttpFault(error(401, "invalid API key"))
        try:
            self._metrics.totals = await self._store.index.totals()
        except (Unavailable, Corrupt):
            self._metrics.faults["index"] += 1
        return Response(200, self._metrics.text(), ((TEXT[0], METRICS_TYPE),))


async def _json(request: Request, kind: type[T]) -> T:
    """A body of this shape; else what axum answers."""
    raw = await request.json_body()
    try:
        return decode_json(raw, kind)
    except msgspec.ValidationError as fault:
        message = f"Failed to deserialize the JSON body into the target type: {fault}"
        raise HttpFault(text(422, message)) from None
    except NOT_JSON as fault:
        raise HttpFault(text(400, f"Failed to parse the request body as JSON: {fault}")) from None
