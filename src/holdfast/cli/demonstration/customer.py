"""One client of the demo, a process of its own: reserves, charges or refunds sample money until it is told to stop.

It survives the node: whatever was not answered is asked again with the same id. What it notes as confirmed, the node
has answered.

    python -m holdfast.cli.demonstration.customer DATA NAME NOTES BEGUN PAUSE_MS
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from hashlib import sha3_256
from itertools import count
from pathlib import Path
from typing import Any, Final

from holdfast.cli.demonstration.notebook import Note, Notebook, Said
from holdfast.client import Client, NodeRefused, NodeUnreachable

REQUESTER: Final = "alice"
PROVIDERS: Final = ("north", "south")
BLOCK_S: Final = 0.5
FINAL_AFTER: Final = 6
"""A block is final when so many are above it."""
JOBS_PER_FINALITY: Final = 10
PATIENCE_S: Final = 2.0


class Over(Exception):
    """Told to stop, or whoever started us is gone: nothing more is asked."""


class Customer:
    """Asks one thing after another and writes down what it is told."""

    def __init__(self, node: Client, notes: Notebook, name: str, begun: float, pause_s: float) -> None:
        self._node, self._notes, self._name = node, notes, name
        self._begun, self._pause_s = begun, pause_s
        self._lowest = 1
        self._parent = os.getppid()
        self.is_told = False

    async def work(self) -> None:
        for number in count(1):
            id_ = sha3_256(f"holdfast demo {self._name} {number}".encode()).hexdigest()
            await self._job(id_, number)
            if number % JOBS_PER_FINALITY == 0 and (height := self._height() - FINAL_AFTER) > 0:
                await self._ask(Note(Said.ASKED, "finalize", str(height)), "account.finalize", height=height)

    async def _job(self, id_: str, number: int) -> None:
        """Set money aside, then pay a part of it and give the rest back; every eighth time give all of it back."""
        amount = 50 + int(id_[:4], 16) % 100
        reserve = Note(Said.ASKED, "reserve", id_, amount)
        await self._ask(reserve, "account.reserve", id=id_, owner=REQUESTER, amount=amount)
        while True:
            height = self._height()
            if number % 8 == 0:
                done = await self._settle(Note(Said.ASKED, "refund", id_), height)
            else:
                fee, payee = 1 + int(id_[4:8], 16) % amount, PROVIDERS[number % 2]
                done = await self._settle(Note(Said.ASKED, "charge", id_, fee), height, payee=payee, amount=fee)
            if done:
                return
            self._lowest = height + 1  # others have settled in a later block: so do we

    async def _settle(self, note: Note, height: int, **what: object) -> bool:
        """True when it is settled; False when the block is past and the node did nothing."""
        try:
            await self._ask(note, f"account.{note.kind}", id=note.id, height=height, **what)
        except NodeRefused as no:
            if no.rule == "ESC-002":
                self._notes.write(_answered(note, Said.REFUSED, why=no.says))
                return False
            # Asked before the node died, done, made final by others meanwhile: the hold itself has the answer.
            hold = await self._call("hold.show", id=note.id) if no.name == "NotFound" else {}
            same = {"height": height, "charged": note.amount, "payee": what.get("payee")}
            if hold.get("settled") is None or any(hold[field] != value for field, value in same.items()):
                raise
            self._notes.write(_answered(note, Said.CONFIRMED, event=hold["settled"], repeat=True))
        return True

    async def _ask(self, note: Note, method: str, **params: object) -> None:
        await asyncio.sleep(self._pause_s)
        self._stop_if_over()
        self._notes.write(note)
        answer = await self._call(method, **params)
        self._notes.write(_answered(note, Said.CONFIRMED, event=answer["event"], repeat=answer["is_repeat"]))

    async def _call(self, method: str, **params: object) -> Any:
        while True:
            with suppress(NodeUnreachable):
                return await self._node.call(method, **params)
            self._stop_if_over()

    def _stop_if_over(self) -> None:
        if self.is_told or os.getppid() != self._parent:
            raise Over

    def _height(self) -> int:
        return max(self._lowest, 1 + int((time.time() - self._begun) / BLOCK_S))


def _answered(note: Note, said: Said, *, event: int = 0, repeat: bool = False, why: str = "") -> Note:
    return Note(said, note.kind, note.id, note.amount, event, repeat, why)


async def main(data: str, name: str, notes: str, begun: str, pause_ms: str) -> None:
    with Notebook(Path(notes)) as book:
        async with Client(Path(data), PATIENCE_S) as node:
            customer = Customer(node, book, name, float(begun), int(pause_ms) / 1000)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, setattr, customer, "is_told", True)
            with suppress(Over):
                await customer.work()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
