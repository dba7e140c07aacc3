"""A follower's blocks, blobs and validators in a SQLite file of its own (SYN-001); one process at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw
import msgspec

from holdfast.adapters.sql.named_queries import queries
from holdfast.adapters.sqlite.connect import connect, connect_to_read, migrate
from holdfast.adapters.sqlite.connection_thread import ConnectionThread
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.values import Height
from holdfast.core.chain.header import SignedHeader
from holdfast.core.sync.followed import FollowedBlob, FollowedChain
from holdfast.core.sync.package import BlockPayload, decode_payload, encode_payload
from holdfast.core.validator.model import ValidatorSet
from holdfast.lightclient.headers import encode_line, parse_line
from holdfast.system.durable_files import FOLDER_MODE, lock_file

_SQL: Final = queries("follower")
_IF_DAMAGED: Final = "remove the file and follow again: every block is checked anew"
_pack = msgspec.msgpack.Encoder().encode
_unpack_blob = msgspec.msgpack.Decoder(FollowedBlob).decode
_unpack_validators = msgspec.msgpack.Decoder(ValidatorSet).decode
T = TypeVar("T")


class SqliteFollowerStore:
    """Synchronous FULL: bytes are deleted because these rows say so."""

    def __init__(self, file: Path, *, is_reader: bool = False) -> None:
        self._file, self._is_reader = file, is_reader
        """A reader looks at what another process stores, and takes no lock."""
        self._thread = ConnectionThread("follower", file, _IF_DAMAGED)
        self._db: apsw.Connection | None = None
        self._lock: int | None = None

    async def chain(self) -> FollowedChain | None:
        return await self._run(self._chain)

    async def append(
        self, signed: SignedHeader, payload: BlockPayload, blobs: Sequence[FollowedBlob], validators: ValidatorSet
    ) -> None:
        await self._run(lambda db: self._append(db, signed, payload, blobs, validators))

    async def block(self, height: Height) -> tuple[SignedHeader, BlockPayload] | None:
        row = await self._run(lambda db: db.execute(_SQL["get_block"], (height,)).fetchone())
        return None if row is None else (_header(row[0]), _payload(row[1]))

    async def blobs(self, height: Height) -> list[FollowedBlob]:
        rows = await self._run(lambda db: db.execute(_SQL["list_blobs"], (height,)).fetchall())
        return [_decoded(_unpack_blob, raw) for (raw,) in rows]

    async def update(self, blobs: Sequence[FollowedBlob]) -> None:
        await self._run(lambda db: self._update(db, blobs))

    async def heights_here(self, after: Height, limit: int) -> list[Height]:
        rows: list[Any] = await self._run(lambda db: db.execute(_SQL["list_heights_here"], (after, limit)).fetchall())
        return [Height(height) for (height,) in rows]

    async def close(self) -> None:
        await self._thread.run(self._close)
        await self._thread.close()

    # ------------------------------------------------------------------------------------ in its thread

    async def _run(self, work: Callable[[apsw.Connection], T]) -> T:
        return await self._thread.run(lambda: work(self._connection()))

    def _connection(self) -> apsw.Connection:
        if self._db is None and self._is_reader:
            if not self._file.exists():
                raise Unavailable("SYN-001", f"{self._file} does not exist", "holdfast follow run begins it")
            self._db = connect_to_read(self._file)
        elif self._db is None:
            self._file.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            self._lock = lock_file(self._file.with_name(f"{self._file.name}.lock"))
            if self._lock is None:
                raise Unavailable("SYN-001", f"another follower uses {self._file}", "one folder for each follower")
            self._db = connect(self._file, "FULL")
            migrate(self._db, "follower")
        return self._db

    def _chain(self, db: apsw.Connection) -> FollowedChain | None:
        head = db.execute(_SQL["get_head"]).fetchone()
        if head is None:
            return None
        validators = db.execute(_SQL["get_validators"]).get  # written with every block
        return FollowedChain(_header(head[0]), _decoded(_unpack_validators, validators))

    def _append(
        self,
        db: apsw.Connection,
        signed: SignedHeader,
        payload: BlockPayload,
        blobs: Sequence[FollowedBlob],
        validators: ValidatorSet,
    ) -> None:
        with db:
            line = encode_line(signed)
            db.execute(_SQL["insert_block"], (signed.header.height, line, encode_payload(payload)))
            db.executemany(_SQL["insert_blob"], [_row(blob) for blob in blobs])
            db.execute(_SQL["set_validators"], (_pack(validators),))

    def _update(self, db: apsw.Connection, blobs: Sequence[FollowedBlob]) -> None:
        with db:
            db.executemany(_SQL["update_blob"], [_row(blob) for blob in blobs])

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _row(blob: FollowedBlob) -> tuple[int, int, str, bytes]:
    return blob.height, blob.number, blob.bytes_status.value, _pack(blob)


def _header(raw: bytes) -> SignedHeader:
    return parse_line(raw, "a followed block")


def _payload(raw: bytes) -> BlockPayload:
    return _decoded(decode_payload, raw)


def _decoded(decode: Callable[[bytes], T], raw: Any) -> T:
    try:
        return decode(raw)
    except ValueError as fault:
        raise Corrupt("SYN-001", f"a row of the follower cannot be read: {fault}", _IF_DAMAGED) from fault
