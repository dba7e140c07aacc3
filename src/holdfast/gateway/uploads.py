"""From uploaded bytes to a stored item: verified or signed here, within its key's quota (ARC-004)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from holdfast.core.base.errors import Refused
from holdfast.gateway.agent_tags import AGENT_VERSION, CustomTag, raw_item_tags
from holdfast.gateway.item_store import ItemStore, NewItem
from holdfast.gateway.key_file import GatewayKey
from holdfast.gateway.records import DEFAULT_TYPE, UploadRecord
from holdfast.gateway.settings import GatewaySettings
from holdfast.gateway.spooled_data import SpooledData
from holdfast.ports import Clock, Signer
from holdfast.wire.ans104 import DataHash, ItemHeader, Tag, sign_header

INVALID_ITEM: Final = "InvalidItem"
TOO_MANY_TAGS: Final = "TooManyTags"
QUOTA: Final = "QuotaExceeded"
NOT_OWNER: Final = "NotOwner"
PROVENANCE_PROTOCOL: Final = "Load-S3-Offchain-Provenance"
_BUCKET_TAG: Final = b"holdfast.gateway.bucket.v1"


class Place(NamedTuple):
    """The bucket of a private upload."""

    bucket: str
    folder: str = ""
    name: str = ""


class Uploaded(NamedTuple):
    """The bytes of an upload, as far as they are known before the item is."""

    data: SpooledData
    header: ItemHeader | None
    """None where the gateway is to sign."""
    content_type: str | None
    tags: Sequence[CustomTag]


class Uploads:
    """Stores items for keys."""

    def __init__(
        self,
        store: ItemStore,
        signer: Signer,
        is_signed_by_owner: Callable[[ItemHeader, DataHash], bool],
        clock: Clock,
        settings: GatewaySettings,
    ) -> None:
        self._store, self._signer, self._clock, self._settings = store, signer, clock, settings
        self._is_signed_by_owner = is_signed_by_owner
        self._arriving: Counter[str] = Counter()
        """Bytes that are being uploaded by each key: they count for its quota before they are stored."""

    @contextmanager
    def arriving(self, key: GatewayKey, size: int) -> Iterator[None]:
        self._arriving[key.id] += size
        try:
            yield
        finally:
            self._arriving[key.id] -= size
            if not self._arriving[key.id]:
                del self._arriving[key.id]

    async def why_not_quota(self, key: GatewayKey) -> Refused | None:
        """Whether the key may store what it is uploading now."""
        most_bytes = self._settings.quota_bytes if key.quota_bytes is None else key.quota_bytes
        most_items = self._settings.quota_items if key.quota_items is None else key.quota_items
        if not most_bytes and not most_items:
            return None
        items, size = await self._store.index.usage(key.id)
        if most_items and items >= most_items:
            return Refused("SEC-001", f"quota exceeded - {most_items} dataitems", name=QUOTA)
        if most_bytes and size + self._arriving[key.id] > most_bytes:
            return Refused("SEC-001", f"quota exceeded - {most_bytes} bytes", name=QUOTA)
        return None

    async def finish(self, key: GatewayKey, uploaded: Uploaded, place: Place | None) -> UploadRecord | Refused:
        """Store a complete upload. Unavailable where the store or the index fails: the client may send it again."""
        header = uploaded.header
        if header is None:
            header_or_refusal = self._sign(uploaded, place)
            if isinstance(header_or_refusal, Refused):
                return header_or_refusal
            header = header_or_refusal
        elif not self._is_signed_by_owner(header, uploaded.data.hash):
            return Refused("ARC-004", "the signature is not its owner's", name=INVALID_ITEM)
        now_ms = self._clock.wall_ms()
        if place is not None and not await self._store.take_bucket(place.bucket, key.id, now_ms):
            return Refused("SEC-001", "invalid load_acc api key", name=NOT_OWNER)
        upload = UploadRecord(id=header.id, created_ms=now_ms, key_id=key.id, **(place or _PUBLIC)._asdict())
        item = NewItem(header, uploaded.data.source, uploaded.data.size, tuple(uploaded.data.chunks))
        return await self._store.store(item, upload)

    async def prove(self, key: GatewayKey, id_: str) -> str | Refused:
        """Store a signed statement that this gateway has the item; the statement's id."""
        header = self._proof(id_)
        if isinstance(header, Refused):
            return header
        upload = UploadRecord(id=header.id, created_ms=self._clock.wall_ms(), key_id=key.id)
        await self._store.store(NewItem(header, b"", 0, ()), upload)
        return header.id

    async def proof_of(self, id_: str) -> UploadRecord | None:
        """The statement about an item, if there is one. Its id follows from the item's, so it is not stored."""
        header = self._proof(id_)
        if isinstance(header, Refused):
            return None
        uploads = await self._store.uploads_of(header.id)
        return next((upload for upload in uploads if upload.is_public), None)

    def _proof(self, id_: str) -> ItemHeader | Refused:
        tags: list[Tag] = [
            (b"Storage-Provider", b"Load-S3"),
            (b"Agent-Version", AGENT_VERSION.encode()),
            (b"Dataitem-Record", id_.encode()),
            (b"Version", b"1"),
            (b"Data-Protocol", PROVENANCE_PROTOCOL.encode()),
        ]
        return sign_header(self._signer, tags, DataHash())

    def _sign(self, uploaded: Uploaded, place: Place | None) -> ItemHeader | Refused:
        """The same bytes, tags and bucket give the same item."""
        tags = raw_item_tags(uploaded.content_type or DEFAULT_TYPE, uploaded.tags)
        if isinstance(tags, Refused):
            return Refused(tags.rule, tags.message, tags.hint, TOO_MANY_TAGS)
        # The anchor keeps items of two buckets apart, and apart from public ones, without naming the bucket.
        anchor = b"" if place is None else hashlib.sha256(_BUCKET_TAG + place.bucket.encode()).digest()
        return sign_header(self._signer, tags, uploaded.data.hash, anchor=anchor)


_PUBLIC: Final = Place("")
