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
from contextlib import suppress
from hashlib import sha3_256
from itertools import count
from pathlib import Path
from typing import Any, Final

from holdfast.cli.demonstration.notebook import Note, Notebook, Said
from holdfast.client import Client, NodeRefused, NodeUnreachable

REQUESTER: Final = "alice"
PROVIDERS: Final = ("north", "south")
PATIENCE_S: Final = 2.0


class Over(Exception):
    """Told to stop, or whoever started us is gone: nothing more is asked."""


class Customer:
    """Asks one thing after another and writes down what it is told."""

    def __init__(self, node: Client, notes: Notebook, name: str, pause_s: float) -> None:
        self._node, self._notes, self._name = node, notes, name
        self._pause_s = pause_s
        self._parent = os.getppid()
        self.is_told = False

    async def work(self) -> None:
        for number in count(1):
            id_ = sha3_256(f"holdfast demo {self._name} {number}".encode()).hexdigest()
            await self._job(id_, number)

    async def _job(self, id_: str, number: int) -> None:
        """Set money aside, then pay a part of it and give the rest back; every eighth time give all of it back."""
        amount = 50 + int(id_[:4], 16) % 100
        reserve = Note(Said.ASKED, "reserve", id_, amount)
        await self._ask(reserve, "account.reserve", id=id_, owner=REQUESTER, amount=amount)
        if number % 8 == 0:
            await self._ask(Note(Said.ASKED, "refund", id_), "account.refund", id=id_)
        else:
            fee, payee = 1 + int(id_[4:8], 16) % amount, PROVIDERS[number % 2]
            await self._ask(Note(Said.ASKED, "charge", id_, fee), "account.charge", id=id_, payee=payee, amount=fee)

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

def _answered(note: Note, said: Said, *, event: int = 0, repeat: bool = False, why: str = "") -> Note:
    return Note(said, note.kind, note.id, note.amount, event, repeat, why)


async def main(data: str, name: str, notes: str, pause_ms: str) -> None:
    with Notebook(Path(notes)) as book:
        async with Client(Path(data), PATIENCE_S) as node:
            customer = Customer(node, book, name, int(pause_ms) / 1000)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, setattr, customer, "is_told", True)
            with suppress(Over):
                await customer.work()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
