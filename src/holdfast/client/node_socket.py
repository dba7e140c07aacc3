"""The Unix socket of the node on this machine: JSON-RPC and the journal's own events, for operators and other nodes.

    async with NodeSocket(Path("holdfast-data")) as node:
        status = await node.call("node.getStatus")

A call that returns is durable. A call that raises `NodeRefused` changed nothing. Every command carries an id, so a
retry is safe: the command takes effect at most once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec

from holdfast.client.errors import NodeRefused
from holdfast.client.refusals import refusal_from
from holdfast.client.retries import RetryDelay
from holdfast.client.sockets import SOCKET_NAME

TOTAL_TIMEOUT_S: Final = 30.0
"""How long a call is retried in all."""
ANSWER_TIMEOUT_S: Final = 10.0
"""After this time without an answer the call is retried on a new connection."""
ANSWER_BYTES_MAX: Final = 64 << 20
"""A payload of a mebibyte may be six times as long in JSON, and an answer holds more than the payload."""


class NodeSocket:
    """One connection, opened when needed and again when lost. Calls of one client wait for each other.

    `data` is the node's folder, or the path of a socket that ends in `.sock`.
    """

    def __init__(
        self, data: Path, total_timeout_s: float = TOTAL_TIMEOUT_S, answer_timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        self._socket = data if data.suffix == ".sock" else data / SOCKET_NAME
        self._total_timeout_s, self._answer_timeout_s = total_timeout_s, answer_timeout_s
        self._ids = count(1)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> NodeSocket:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    # ------------------------------------------------------------------------------------ jobs

    async def job(self, task_id: str) -> Any:
        return await self.call("cap.getJob", task_id=task_id)

    # ------------------------------------------------------------------------------------ money

    async def mint(self, id_: bytes, owner: str, amount: int) -> Any:
        return await self.call("account.mint", id=id_.hex(), owner=owner, amount=amount)

    async def reserve(self, id_: bytes, owner: str, amount: int, memo: bytes = b"") -> Any:
        return await self.call("account.reserve", id=id_.hex(), owner=owner, amount=amount, memo=memo.hex())

    async def charge(self, id_: bytes, payee: str, amount: int) -> Any:
        return await self.call("account.charge", id=id_.hex(), payee=payee, amount=amount)

    async def refund(self, id_: bytes) -> Any:
        return await self.call("account.refund", id=id_.hex())

    async def account(self, owner: str) -> Any:
        return await self.call("account.getAccount", owner=owner)

    async def reservation(self, id_: bytes) -> Any:
        return await self.call("account.getReservation", id=id_.hex())

    async def status(self) -> Any:
        return await self.call("node.getStatus")

    # ------------------------------------------------------------------------------------ calls

    async def call(self, method: str, **params: object) -> Any:
        """Call until there is an answer or the timeout ends; a lost connection and a recovering node are retried."""
        return await self._call_with_retry({"method": method, "params": params})

    async def call_for(self, principal: object, method: str, params: object) -> Any:
        """The same on behalf of a principal: a standby forwards commands to the owner with it."""
        return await self._call_with_retry({"method": method, "params": params, "principal": principal})

    async def _call_with_retry(self, request: dict[str, object]) -> Any:
        delay = RetryDelay(str(self._socket), self._total_timeout_s)
        async with self._lock:
            while True:
                try:
                    async with asyncio.timeout(self._answer_timeout_s):
                        return await self._exchange(request)
                except (OSError, EOFError, NodeRefused) as fault:  # a time-out is an OSError, too
                    if isinstance(fault, NodeRefused) and fault.name != "Unavailable":
                        raise
                    await asyncio.sleep(delay.next_s(fault))

    async def follow(self, after: int | str = 0, *, derived: bool = False) -> AsyncIterator[Any]:
        """Events after a cursor, each once, over restarts of the node; keep the last `number` to resume later.

        `derived`: also what blocks do to results (EVT-002). Such an event has an `index`; its cursor is `number.index`.
        """
        delay = RetryDelay(str(self._socket), self._total_timeout_s)
        while True:
            try:
                async for event in self._stream(after, derived):
                    after = cursor_of(event)
                    delay.reset()
                    yield event
                fault: Exception = EOFError("the node hung up")
            except (OSError, EOFError) as error:
                fault = error
            await asyncio.sleep(delay.next_s(fault))

    async def _stream(self, after: int | str, derived: bool) -> AsyncIterator[Any]:
        reader, writer = await asyncio.open_unix_connection(self._socket, limit=ANSWER_BYTES_MAX)
        try:
            writer.write(_request(0, {"method": "events.follow", "params": {"after": after, "derived": derived}}))
            while (line := await reader.readline()).endswith(b"\n"):  # an incomplete line is not a message
                message = msgspec.json.decode(line)
                if "error" in message:
                    raise refusal_from(message["error"])
                yield message["params"]
        finally:
            writer.close()

    async def _exchange(self, request: dict[str, object]) -> Any:
        try:
            return await self._exchange_once(request)
        except NodeRefused:
            raise
        except BaseException:  # also when cancelled: a late answer must not be taken for the next call's
            await self.close()
            raise

    async def _exchange_once(self, request: dict[str, object]) -> Any:
        if self._streams is None:
            self._streams = await asyncio.open_unix_connection(self._socket, limit=ANSWER_BYTES_MAX)
        reader, writer = self._streams
        id_ = next(self._ids)
        writer.write(_request(id_, request))
        await writer.drain()
        line = await reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError("the node hung up")
        message = msgspec.json.decode(line)
        if "error" in message:
            raise refusal_from(message["error"])
        if message["id"] != id_:
            raise EOFError(f"an answer to {message['id']}, not to {id_}")
        return message["result"]


def cursor_of(event: Any) -> int | str:
    """From which `follow` resumes after this event."""
    return f"{event['number']}.{event['index']}" if "index" in event else int(event["number"])


def _request(id_: int, request: dict[str, object]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id_, **request}) + b"\n"
