"""An archive that speaks the API of load-s3-agent over HTTP (ARC-004): items are signed here and uploaded whole."""

from __future__ import annotations

import asyncio
import http.client
import secrets
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from holdfast.adapters.archive.object_archive import data_of
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.base.values import Digest
from holdfast.ports.blobs import ItemUpload

PREFIX: Final = "load-s3://"
FOUND_MAX: Final = 25
"""Items that one query asks for, the newest first."""
ANSWER_BYTES_MAX: Final = 64 << 20
QUERIED: Final = ("versioned_hash", "height", "blob_index", "proposer")
"""The tags by which an upload without an answer is found again."""
CANDIDATES_MAX: Final = 25
INVALID_KEY: Final = "invalid load_acc api key"
_REFUSED: Final = frozenset({401, 403})


class LoadS3Archive:
    """One agent, and the gateway that shows what it has stored. With a bucket, uploads are private."""

    id = "load-s3-agent"

    def __init__(
        self,
        url: str,
        token: str,
        *,
        gateway_url: str = "",
        timeout_s: float = 30.0,
        bucket: str = "",
        is_raw: bool = False,
    ) -> None:
        self._url, self._gateway_url = url.rstrip("/"), (gateway_url or url).rstrip("/")
        self._token, self._timeout_s, self._bucket, self._is_raw = token, timeout_s, bucket, is_raw

    async def open(self) -> None:
        """An agent that is away is noticed by the first upload."""

    def locator_of(self, item_id: str) -> str:
        return PREFIX + item_id

    async def store(self, item: ItemUpload) -> Refused | str | None:
        if self._is_raw:
            return await self._store_raw(item)
        stored = await self._upload([_FILE_HEAD + item.raw], is_signed=True)
        if not isinstance(stored, Refused) and stored != item.id:  # ARC-002: its id is known beforehand
            raise Unavailable("ARC-002", f"the archive has stored {stored!r:.60}, not {item.id}", "it is tried again")
        return stored if isinstance(stored, Refused) else None

    async def _store_raw(self, item: ItemUpload) -> Refused | str:
        """The agent signs, and every upload is another item: before a retry the first one is looked for (ARC-002)."""
        if item.is_retry and (found := await self._find(item)) is not None:
            return self.locator_of(found)
        tags = [{"key": key.decode(), "value": value.decode()} for key, value in item.tags if key != b"content_type"]
        stored = await self._upload([_FILE_HEAD + item.data, _TAGS_HEAD + msgspec.json.encode(tags)], is_signed=False)
        return stored if isinstance(stored, Refused) else self.locator_of(stored)

    async def _find(self, item: ItemUpload) -> str | None:
        """An item with our tags whose data are ours: tags are anybody's words (NTC-004)."""
        named = dict(item.tags)
        filters = [{"key": key, "value": named[key.encode()].decode()} for key in QUERIED if key.encode() in named]
        body = msgspec.json.encode({"filters": filters, "first": CANDIDATES_MAX})
        kind = {"content-type": "application/json"}
        status, answer = await self._request("POST", f"{self._url}/tags/query", kind, body)
        if status != 200:
            raise Unavailable("ARC-002", f"tag query: status {status}, {_error(answer)}", "it is tried again")
        for id_ in _item_ids(answer):
            if await self.fetch(id_) == item.data:
                return id_
        return None

    async def _upload(self, parts: list[bytes], *, is_signed: bool) -> Refused | str:
        body, content_type = _form(parts)
        headers = {"authorization": f"Bearer {self._token}", "content-type": content_type}
        headers |= {"signed": "true"} if is_signed else {}
        headers |= {"x-bucket-name": self._bucket} if self._bucket else {}
        path = "/upload/private" if self._bucket else "/upload"
        status, answer = await self._request("POST", f"{self._url}{path}", headers, body)
        if status in _REFUSED or INVALID_KEY in _error(answer):  # a wrong key of a bucket is a 500 there
            return Refused("ARC-003", f"the archive refuses our key: {_error(answer)}", "check archive.token_file")
        stored = _field(answer, "dataitem_id")
        if status != 200 or not isinstance(stored, str) or not stored:
            raise Unavailable("ARC-003", f"upload: status {status}, {_error(answer)}", "it is tried again")
        return stored

    async def fetch(self, locator: str) -> bytes | None:
        """A locator of the agent: with its scheme, a bare id, or the address of a gateway."""
        item_id = locator.removeprefix(PREFIX).rstrip("/").rsplit("/", 1)[-1]
        key = {"authorization": f"Bearer {self._token}"} if self._bucket else {}
        status, answer = await self._request("GET", f"{self._gateway_url}/binary/{item_id}", key, b"")
        if status == 404:
            return None
        if status != 200:
            raise Unavailable("ARC-004", f"reading back: status {status}, {_error(answer)}", "it is tried again")
        return data_of(answer)

    async def find(self, place: str, versioned_hash: Digest) -> list[str]:
        """NTC-004: a query by tags. One agent may serve several chains, whose heights are the same."""
        _, height, index = place.split("/")
        tags = {"load.height": height, "load.blob_index": index, "load.versioned_hash": f"0x{versioned_hash.hex()}"}
        filters = [{"key": key, "value": value} for key, value in tags.items()]
        body = msgspec.json.encode({"filters": filters, "first": FOUND_MAX})
        headers = {"content-type": "application/json"}
        status, answer = await self._request("POST", f"{self._url}/tags/query", headers, body)
        if status != 200:
            raise Unavailable("NTC-004", f"tag query: status {status}, {_error(answer)}", "it is tried again")
        items = _field(answer, "items")
        ids = [each.get("dataitem_id") for each in items if isinstance(each, dict)] if isinstance(items, list) else []
        return [self.locator_of(item_id) for item_id in ids if isinstance(item_id, str)]

    async def close(self) -> None:
        """Every request has a connection of its own."""

    async def _request(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        try:
            return await asyncio.to_thread(self._send, method, url, headers, body)
        except (OSError, http.client.HTTPException) as fault:
            message = f"{urlsplit(url).netloc}: {fault or type(fault).__name__}"
            raise Unavailable("ARC-003", message, "it is tried again") from fault

    def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        parts = urlsplit(url)
        connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = connect(parts.netloc, timeout=self._timeout_s)
        try:
            connection.request(method, parts.path, body or None, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read(ANSWER_BYTES_MAX)
        finally:
            connection.close()


_FILE_HEAD: Final = (
    b'content-disposition: form-data; name="file"; filename="item"\r\ncontent-type: application/octet-stream\r\n\r\n'
)
_TAGS_HEAD: Final = b'content-disposition: form-data; name="tags"\r\n\r\n'


def _form(parts: list[bytes]) -> tuple[bytes, str]:
    """multipart/form-data."""
    boundary = f"holdfast-{secrets.token_hex(16)}"
    body = b"".join(b"--%s\r\n%s\r\n" % (boundary.encode(), part) for part in parts)
    return body + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


def _item_ids(answer: bytes) -> list[str]:
    """The ids of a tag query, oldest first: of two items of one blob every node takes the same."""
    items = _field(answer, "items")
    ids = [each.get("dataitem_id") for each in items if isinstance(each, dict)] if isinstance(items, list) else []
    return [id_ for id_ in reversed(ids) if isinstance(id_, str)]


def _field(answer: bytes, name: str) -> object:
    try:
        return msgspec.json.decode(answer, type=dict[str, object]).get(name)
    except msgspec.DecodeError:
        return None


def _error(answer: bytes) -> str:
    return str(_field(answer, "error") or "no reason given")[:200]
