"""Reads: one record from memory, from rows on their way or from the tables; lists from the tables, with `as_of`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from holdfast.core import law
from holdfast.core.canon import H
from holdfast.core.escrow.acts import Reserve, Reserved, hold_key
from holdfast.core.escrow.books import Account, Hold
from holdfast.core.event import PAYLOAD_TAG
from holdfast.core.refusal import Corrupt
from holdfast.core.values import AccountId, Amount, BatchNo, EventNo, HoldId
from holdfast.engine.loop import Engine
from holdfast.ports import Row

R = TypeVar("R", Account, Hold)
PAGE_MAX = 1_000


class Listing(msgspec.Struct, frozen=True):
    """Some rows in key order, and the event up to which they are complete (ENG-004)."""

    rows: list[Account] | list[Hold]
    as_of: EventNo
    next_after: str | int | None
    """Where the next page starts, None at the end."""


async def account(engine: Engine, owner: AccountId) -> Account | None:
    """An account as it is now: accounts never leave memory."""
    return await engine.ask(lambda state: _copy(state.ledger.accounts.get(owner)))


async def hold(engine: Engine, id_: HoldId) -> Hold | None:
    """A reservation as it is now, from memory while it is open, from the projection once it is final."""
    image = await engine.ask(lambda state: _copy(state.ledger.holds.get(id_)))
    if image is not None:
        return image
    number = await _event_of(engine, hold_key(Reserve(id_, AccountId(""), Amount(0))))
    if number is None:
        return None
    row = engine.projector.peek(("hold", number)) or await engine.tables.get("hold", number)
    return _record(Hold, row) if row else None


async def memo(engine: Engine, found: Hold) -> bytes:
    """What a reservation was made for: small memos are in their event, large ones beside its batch (ENG-007)."""
    if found.memo_digest is None:
        return b""
    number = await engine.journal.batch_of(found.event)
    raw = None if number is None else await engine.journal.attachment(number, found.memo_digest)
    if raw is None and number is not None:
        raw = await _inline_memo(engine, number, found.event)
    if raw is None or H(PAYLOAD_TAG, raw) != found.memo_digest:
        raise Corrupt("ENG-007", f"the memo of event {found.event} is missing or damaged", "restore it from a backup")
    return raw


async def page(engine: Engine, table: str, match: Mapping[str, object], after: str | int, limit: int) -> Listing:
    """A list is read from the tables and says as of which event; it may lag the newest by a moment."""
    limit = min(limit, PAGE_MAX)
    rows, as_of = await engine.tables.page(table, match, after, limit)
    kind: type[Account] | type[Hold] = Account if table == "account" else Hold
    next_after = rows[-1][0] if len(rows) == limit else None
    assert next_after is None or isinstance(next_after, str | int)
    return Listing([_record(kind, row) for row in rows], as_of, next_after)  # type: ignore[type-var, arg-type]


def _copy(found: R | None) -> R | None:
    """The record as it is at this moment: the one in memory goes on changing."""
    return msgspec.structs.replace(found) if found is not None else None


async def _event_of(engine: Engine, key: bytes) -> EventNo | None:
    claim = engine.state.claims.find(key) or await engine.tables.find_claim(key)
    return claim.event if claim else None


async def _inline_memo(engine: Engine, number: BatchNo, event: EventNo) -> bytes | None:
    async for batch in engine.journal.read(BatchNo(number - 1), number):
        found = law.unpack(batch)[event - batch.first]
        if isinstance(found, Reserved) and found.memo is not None:
            return found.memo.inline
    return None


def _record(kind: type[R], row: Row) -> R:
    fields = dict(zip(kind.__struct_fields__, row, strict=True))
    return msgspec.convert(fields, kind, builtin_types=(bytes,))
