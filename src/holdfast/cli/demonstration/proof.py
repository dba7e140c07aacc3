"""The end of the demo: everything is read again from the store and compared with what the clients were told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Final

from holdfast.cli.demonstration.board import Check
from holdfast.cli.demonstration.history import History
from holdfast.cli.demonstration.notebook import Note, Said
from holdfast.client import Client, NodeRefused
from holdfast.config import Config

PAGE: Final = 1_000


async def ask_for_holds(data: Path, notes: Iterable[Note]) -> Check:
    """Every hold that a client was told of, asked for by its id."""
    ids = sorted({note.id for note in notes if note.said is Said.CONFIRMED and note.kind == "reserve"})
    unknown = 0
    async with Client(data) as node:
        for id_ in ids:
            try:
                await node.call("hold.show", id=id_)
            except NodeRefused as no:
                if no.name != "NotFound":
                    raise
                unknown += 1
    return Check("holds the node knows by id", f"{len(ids) - unknown:,} of {len(ids):,}", unknown == 0)


async def add_up_money(data: Path, history: History) -> list[Check]:
    """ESC-001: what events say was reserved, against what they say was settled and what the accounts say is held."""
    accounts = [account async for account in _accounts(data, history.last)]
    held = sum(account["held"] for account in accounts)
    everything = sum(account["available"] + account["held"] + account["pending"] for account in accounts)
    reserved, charged, refunded = (history.totals[name] for name in ("reserved", "charged", "refunded"))
    return [
        Check(
            "reserved = charged + refunded + held",
            f"{reserved:,} = {charged:,} + {refunded:,} + {held:,}",
            reserved == charged + refunded + held,
        ),
        Check(f"all {len(accounts)} accounts together", f"{everything:,}", everything == 0),
    ]


async def _accounts(data: Path, as_of: int) -> AsyncIterator[dict[str, Any]]:
    """All accounts once the tables have reached this event: lists may lag a moment behind."""
    after: str | None = ""
    async with Client(data) as node:
        while after is not None:
            page = await node.call("account.list", after=after, limit=PAGE)
            if page["as_of"] < as_of:
                await asyncio.sleep(0.05)
                continue
            for account in page["rows"]:
                yield account
            after = page["next_after"]


async def live_digest(data: Path) -> tuple[int, str]:
    async with Client(data) as node:
        answer = await node.call("node.digest")
        return answer["event"], answer["digest"]


async def fold_journal(config: Config, live: tuple[int, str]) -> Check:
    """ENG-003: the state built from nothing but the journal has the digest that the living node had."""
    from holdfast.app import stores  # noqa: PLC0415 - the customers need no database
    from holdfast.core import law  # noqa: PLC0415
    from holdfast.core.escrow.books import broken_laws  # noqa: PLC0415
    from holdfast.core.event import Tip  # noqa: PLC0415
    from holdfast.core.state import State, digest  # noqa: PLC0415

    state, tip = State(config.policy), Tip()
    journal, tables = stores(config)
    try:
        async for batch in journal.read(tip.number):
            tip = law.fold(state, tip, (batch,))
    finally:
        await journal.close()
        await tables.close()
    folded = (int(state.last_event), digest(state).hex())
    label = f"{tip.last:,} events folded from nothing"
    if broken := broken_laws(state.ledger):
        return Check(label, f"broken: {', '.join(broken)}", is_good=False)
    sign = "=" if folded == live else "is not"
    return Check(label, f"{folded[1][:8]} {sign} live {live[1][:8]}", folded == live)
