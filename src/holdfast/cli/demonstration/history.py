"""What the store says: the events of a node, read from its door while it lives or from its disk when it does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from holdfast.client import Client
from holdfast.config import Config


class Deed(NamedTuple):
    """One thing that was done: by which event, what, and how much it moved."""

    event: int
    kind: str
    amount: int


SLOTS: Final = {"reserve": "reserve", "charge": "settle", "refund": "settle", "mint": "mint", "finalize": "finalize"}
"""What may happen once to an id: a hold is settled by one charge or by one refund, never by both."""
_KINDS: Final = {
    "Minted": "mint",
    "Reserved": "reserve",
    "Charged": "charge",
    "Refunded": "refund",
    "Finalized": "finalize",
}


class History:
    """The events up to `last`, added up."""

    def __init__(self) -> None:
        self.last = 0
        self.epochs = 0
        self.finalized = 0
        self.deeds: dict[tuple[str, str], list[Deed]] = {}
        self.totals: Counter[str] = Counter()
        self._settled: Counter[int] = Counter()
        """Settlements by block, as long as it is not final."""
        self.final = 0

    @property
    def pending(self) -> int:
        return self._settled.total()

    @property
    def open(self) -> int:
        """Reservations that hold money."""
        return self.totals["holds"] - self.pending - self.final

    def take(self, number: int, kind: str, event: Mapping[str, Any]) -> None:
        self.last = number
        if kind == "OwnershipTaken":
            self.epochs += 1
        if kind not in _KINDS:
            return
        deed = Deed(number, _KINDS[kind], event.get("amount", event.get("charged", 0)))
        id_ = str(event["height"]) if kind == "Finalized" else event["id"]
        self.deeds.setdefault((SLOTS[deed.kind], id_), []).append(deed)
        self._add_up(deed, id_, event)

    def _add_up(self, deed: Deed, id_: str, event: Mapping[str, Any]) -> None:
        match deed.kind:
            case "reserve":
                self.totals["holds"] += 1
                self.totals["reserved"] += deed.amount
            case "charge" | "refund":
                self.totals["charged"] += deed.amount
                reserved = sum(earlier.amount for earlier in self.deeds.get(("reserve", id_), ())[:1])
                self.totals["refunded"] += reserved - deed.amount
                self._settled[event["height"]] += 1
            case "finalize":
                self.finalized = max(self.finalized, event["height"])
                for height in [height for height in self._settled if height <= self.finalized]:
                    self.final += self._settled.pop(height)


async def follow(data: Path, into: History) -> AsyncGenerator[int, None]:
    """Fill a history from the living node, event by event, as long as it lives."""
    async with aclosing(cast(AsyncGenerator[Any, None], Client(data).follow(into.last))) as events:
        async for event in events:
            into.take(event["number"], event["type"], event["event"])
            yield into.last


async def from_node(data: Path) -> History:
    """What the node tells from its first event on, up to its newest."""
    history = History()
    async with Client(data) as node:
        until = (await node.status())["event"]
    async with aclosing(follow(data, history)) as numbers:
        async for number in numbers:
            if number >= until:
                break
    return history


async def from_disk(config: Config) -> History:
    """What lies in the journal, whether a node runs or not; every batch's hash and place in the chain is checked."""
    from holdfast.app import stores  # noqa: PLC0415 - the customers need no database
    from holdfast.core import law  # noqa: PLC0415
    from holdfast.core.event import Tip, check_follows, tip_of  # noqa: PLC0415
    from holdfast.core.values import BatchNo  # noqa: PLC0415
    from holdfast.doors.shapes import plain  # noqa: PLC0415

    history, tip = History(), Tip()
    journal, tables = stores(config)
    try:
        async for batch in journal.read(BatchNo(0)):
            check_follows(tip, batch)
            tip = tip_of(batch)
            for number, event in enumerate(law.unpack(batch), start=batch.first):
                history.take(number, type(event).__name__, plain(event))
    finally:
        await journal.close()
        await tables.close()
    return history
