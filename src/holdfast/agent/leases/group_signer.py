"""Signs what is to be signed in one turn of the event loop with one signature (PRV-003)."""

from __future__ import annotations

import asyncio

from holdfast.ports import Signer
from holdfast.wire.group_signatures import sign_group


class GroupSigner:
    """Of one event loop. Leases that end together are reported under one signature."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        self._waiting: list[tuple[bytes, asyncio.Future[bytes]]] = []

    def sign_all(self, messages: list[bytes]) -> list[bytes]:
        """One signature for these, at once."""
        return sign_group(self._signer.sign, messages)

    async def sign(self, message: bytes) -> bytes:
        """The signature of this message, made with those that are asked for until the loop's next turn."""
        loop = asyncio.get_running_loop()
        signature: asyncio.Future[bytes] = loop.create_future()
        self._waiting.append((message, signature))
        if len(self._waiting) == 1:
            loop.call_soon(self._sign_waiting)
        return await signature

    def _sign_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for (_, future), signature in zip(waiting, self.sign_all([message for message, _ in waiting]), strict=True):
            if not future.done():
                future.set_result(signature)
