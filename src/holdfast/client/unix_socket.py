"""A client of the node on this machine, over its Unix socket. It retries after a crash, with the same ids.

    async with Client(Path("holdfast-data")) as node:
        receipt = await node.enqueue({"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}, 100, "alice")
        await node.wait(receipt["task_id"])
        output = await node.result(receipt["task_id"])

A call that returns is durable. A call that raises `NodeRefused` changed nothing. Every command carries an id, so a
retry is safe: the command takes effect at most once.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec

from holdfast.core.base.errors import Corrupt
from holdfast.core.result import result_digest

SOCKET_NAME: Final = "node.sock"
TOTAL_TIMEOUT_S: Final = 30.0
"""How long a call is retried in all."""
ANSWER_TIMEOUT_S: Final = 10.0
"""After this time without an answer the call is retried on a new connection."""
ANSWER_BYTES_MAX: Final = 64 << 20
"""A payload of a mebibyte may be six times as long in JSON, and an answer holds more than the payload."""
RESULT_EVENTS: Final = frozenset({"blockSealed", "jobCancelled", "jobExpired", "jobFailed"})
"""Events after which a result may be readable, or certain never to come."""
_RETRY_FIRST_S, _RETRY_MAX_S = 0.02, 1.0


class NodeRefused(Exception):
    """The node refused the request; `name`, `rule` and `hint` are the refusal's."""

    def __init__(
        self, *, code: int, name: str, rule: str, message: str, hint: str, details: dict[str, str] | None = None
    ) -> None:
        super().__init__(f"{rule}: {message}" + (f" ({hint})" if hint else ""))
        self.code, self.name, self.rule, self.message, self.hint = code, name, rule, message, hint
        self.details = details or {}

    @classmethod
    def from_error(cls, error: dict[str, Any]) -> NodeRefused:
        """From the error object of a JSON-RPC response."""
        data = error.get("data") or {}
        return cls(
            code=error["code"],
            name=data.get("name", ""),
            rule=data.get("rule", ""),
            message=error["message"],
            hint=data.get("hint", ""),
            details=data.get("about"),
        )


class JobEnded(Exception):
    """The job ended without a result: cancelled, expired or failed. Its fee was refunded."""


class NodeUnreachable(Exception):
    """No answer within the timeout: the request may or may not have taken effect."""


class Client:
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

    async def __aenter__(self) -> Client:
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

    async def enqueue(self, payload: dict[str, Any], max_fee: int, caller: str, key: str | None = None) -> Any:
        """Enqueue a job and return its receipt; `key` makes a repeat of this call safe, and is random by default."""
        key = key or secrets.token_hex(16)
        return await self.call("cap.enqueue", payload=payload, max_fee=max_fee, caller=caller, idempotency_key=key)

    async def job(self, task_id: str) -> Any:
        return await self.call("cap.getJob", task_id=task_id)

    async def wait(self, task_id: str) -> Any:
        """The result's record, as soon as it is readable (RES-002); JobEnded where there will be none.

        It follows the node's events, over restarts and reorgs.
        """
        cursor = (await self.status())["event"]
        if (result := await self._readable(task_id)) is not None:
            return result
        async for event in self.follow(cursor):
            if event["type"] in RESULT_EVENTS and (result := await self._readable(task_id)) is not None:
                return result
        raise NodeUnreachable("the events ended")

    async def _readable(self, task_id: str) -> Any:
        try:
            return await self.call("cap.getResult", task_id=task_id)
        except NodeRefused as refusal:
            if refusal.name == "NoResultYet":
                return None
            if refusal.name == "Expired":
                raise JobEnded(refusal.message) from refusal
            raise

    async def result(self, task_id: str) -> bytes:
        """The output, checked against the digest that the chain holds (RES-004)."""
        record = await self.call("cap.getResult", task_id=task_id)
        raw = bytes.fromhex((await self.call("cap.getResultBytes", task_id=task_id))["bytes"])
        if result_digest(raw).hex() != record["result_digest"]:
            raise Corrupt("RES-004", f"the bytes of {task_id} do not have the digest of its result")
        return raw

    async def read_result(self, task_id: str, chain_id: int | None = None) -> Any:
        """The record of a result, as a contract reads it; NodeRefused names why not (RES-007)."""
        return await self.call("cap.readResult", task_id=task_id, chain_id=chain_id)

    async def consume_result(self, task_id: str, caller: str, nonce: int | None = None) -> Any:
        """Consume a result, once (RES-005); the nonce makes a repeat of this call safe, and is random by default."""
        nonce = secrets.randbits(63) if nonce is None else nonce
        return await self.call("cap.consumeResult", task_id=task_id, caller=caller, nonce=nonce)

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
        delay = _RetryDelay(self._total_timeout_s)
        async with self._lock:
            while True:
                try:
                    async with asyncio.timeout(self._answer_timeout_s):
                        return await self._exchange(request)
                except (OSError, EOFError, NodeRefused) as fault:  # a time-out is an OSError, too
                    if isinstance(fault, NodeRefused) and fault.name != "Unavailable":
                        raise
                    await delay.wait(self._socket, fault)

    async def follow(self, after: int = 0) -> AsyncIterator[Any]:
        """Events after a cursor, each once, over restarts of the node; keep the last `number` to resume later."""
        delay = _RetryDelay(self._total_timeout_s)
        while True:
            try:
                async for event in self._stream(after):
                    after, delay = event["number"], _RetryDelay(self._total_timeout_s)
                    yield event
                fault: Exception = EOFError("the node hung up")
            except (OSError, EOFError) as error:
                fault = error
            await delay.wait(self._socket, fault)

    async def _stream(self, after: int) -> AsyncIterator[Any]:
        reader, writer = await asyncio.open_unix_connection(self._socket, limit=ANSWER_BYTES_MAX)
        try:
            writer.write(_request(0, {"method": "events.follow", "params": {"after": after}}))
            while (line := await reader.readline()).endswith(b"\n"):  # an incomplete line is not a message
                message = msgspec.json.decode(line)
                if "error" in message:
                    raise NodeRefused.from_error(message["error"])
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
            raise NodeRefused.from_error(message["error"])
        if message["id"] != id_:
            raise EOFError(f"an answer to {message['id']}, not to {id_}")
        return message["result"]


class _RetryDelay:
    """Growing pauses until the timeout ends."""

    def __init__(self, total_timeout_s: float) -> None:
        self._total_timeout_s, self._wait_s = total_timeout_s, _RETRY_FIRST_S
        self._deadline = asyncio.get_running_loop().time() + total_timeout_s

    async def wait(self, socket: Path, fault: Exception) -> None:
        if asyncio.get_running_loop().time() + self._wait_s > self._deadline:
            raise NodeUnreachable(f"no answer from {socket} for {self._total_timeout_s:g} s: {fault}") from fault
        await asyncio.sleep(self._wait_s)
        self._wait_s = min(2 * self._wait_s, _RETRY_MAX_S)


def _request(id_: int, request: dict[str, object]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id_, **request}) + b"\n"
