"""What a requester imports: asks a node over its local socket, and asks again after a crash, with the same ids.

    async with Client(Path("holdfast-data")) as node:
        receipt = await node.enqueue({"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}, 100, "alice")
        await node.wait(receipt["task_id"])
        output = await node.result(receipt["task_id"])

A call that returns is durable. A call that raises `NodeRefused` changed nothing. Every command carries an id, so asking
again is safe: it is done at most once.
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

from holdfast.core.refusal import Corrupt
from holdfast.core.result import result_digest

SOCKET: Final = "node.sock"
PATIENCE_S: Final = 30.0
"""How long a call is tried in all."""
ANSWER_WITHIN_S: Final = 10.0
"""A node that does not answer for so long may hang: it is asked again on a new connection."""
ANSWER_BYTES_MAX: Final = 64 << 20
"""A payload of a mebibyte may be six times as long in JSON, and an answer says more than the question did."""
WORTH_ASKING: Final = frozenset({"BlockSealed", "JobCancelled", "JobExpired", "JobFailed"})
"""Events after which a result may have become readable, or certain never to come."""
_RETRY_FIRST_S, _RETRY_MAX_S = 0.02, 1.0


class NodeRefused(Exception):
    """The node said no, with the rule and the hint it gave."""

    def __init__(
        self, code: int, name: str, rule: str, says: str, hint: str, about: dict[str, str] | None = None
    ) -> None:
        super().__init__(f"{rule}: {says}" + (f" ({hint})" if hint else ""))
        self.code, self.name, self.rule, self.says, self.hint = code, name, rule, says, hint
        self.about = about or {}


class JobEnded(Exception):
    """The job ended without a result: cancelled, expired or failed; its money went back."""


class NodeUnreachable(Exception):
    """No answer within the client's patience: what was asked may or may not have been done."""


class Client:
    """One connection, made when needed and made again when lost. Calls of one client wait for each other.

    `data` is the node's folder, or the path of a socket that ends in `.sock`.
    """

    def __init__(self, data: Path, patience_s: float = PATIENCE_S, answer_within_s: float = ANSWER_WITHIN_S) -> None:
        self._socket = data if data.suffix == ".sock" else data / SOCKET
        self._patience_s, self._answer_within_s = patience_s, answer_within_s
        self._ids = count(1)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()

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
        """Hand a job over for a receipt; `key` makes asking again safe beyond this call, and is drawn if not given."""
        told = {"payload": payload, "max_fee": max_fee, "caller": caller}
        return await self.call("cap.enqueue", **told, idempotency_key=key or secrets.token_hex(16))

    async def job(self, task_id: str) -> Any:
        return await self.call("cap.getJob", task_id=task_id)

    async def wait(self, task_id: str) -> Any:
        """The result's record, as soon as a call may read it (RES-002); JobEnded where there will be none.

        It waits at the event cursor, over restarts of the node and over reorgs.
        """
        cursor = (await self.status())["event"]
        if (found := await self._readable(task_id)) is not None:
            return found
        async for event in self.follow(cursor):
            if event["type"] in WORTH_ASKING and (found := await self._readable(task_id)) is not None:
                return found
        raise NodeUnreachable("the events ended")

    async def _readable(self, task_id: str) -> Any:
        try:
            return await self.call("cap.getResult", task_id=task_id)
        except NodeRefused as no:
            if no.name == "NoResultYet":
                return None
            if no.name == "Expired":
                raise JobEnded(no.says) from no
            raise

    async def result(self, task_id: str) -> bytes:
        """The output, checked against the digest that the chain holds (RES-004)."""
        record = await self.call("cap.getResult", task_id=task_id)
        raw = bytes.fromhex((await self.call("cap.getResultBytes", task_id=task_id))["bytes"])
        if result_digest(raw).hex() != record["result_digest"]:
            raise Corrupt("RES-004", f"the bytes of {task_id} are not those of its digest")
        return raw

    async def read_result(self, task_id: str, chain_id: int | None = None) -> Any:
        """The record of a result, as a contract would read it; NodeRefused says by name why not (RES-007)."""
        return await self.call("cap.readResult", task_id=task_id, chain_id=chain_id)

    async def consume_result(self, task_id: str, caller: str, nonce: int | None = None) -> Any:
        """Mark a result as used, once (RES-005); the nonce makes asking again safe, and is drawn if not given."""
        told = {"task_id": task_id, "caller": caller, "nonce": nonce if nonce is not None else secrets.randbits(63)}
        return await self.call("cap.consumeResult", **told)

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
        return await self.call("account.show", owner=owner)

    async def hold(self, id_: bytes) -> Any:
        return await self.call("hold.show", id=id_.hex())

    async def status(self) -> Any:
        return await self.call("node.status")

    # ------------------------------------------------------------------------------------ asking

    async def call(self, method: str, **params: object) -> Any:
        """Ask until there is an answer or patience ends; a lost connection or a recovering node is asked again."""
        return await self._patiently({"method": method, "params": params})

    async def call_for(self, visitor: object, method: str, params: object) -> Any:
        """The same on behalf of somebody else: how a standby hands on what the owner decides."""
        return await self._patiently({"method": method, "params": params, "visitor": visitor})

    async def _patiently(self, asked: dict[str, object]) -> Any:
        patience = _Patience(self._patience_s)
        async with self._turn:
            while True:
                try:
                    async with asyncio.timeout(self._answer_within_s):
                        return await self._ask(asked)
                except (OSError, EOFError, NodeRefused) as fault:  # a time-out is an OSError, too
                    if isinstance(fault, NodeRefused) and fault.name != "Unavailable":
                        raise
                    await patience.wait(self._socket, fault)

    async def follow(self, after: int = 0) -> AsyncIterator[Any]:
        """Events after a cursor, each once, also over a restart of the node; keep the last `number` to go on later."""
        patience = _Patience(self._patience_s)
        while True:
            try:
                async for event in self._stream(after):
                    after, patience = event["number"], _Patience(self._patience_s)
                    yield event
                fault: Exception = EOFError("the node hung up")
            except (OSError, EOFError) as error:
                fault = error
            await patience.wait(self._socket, fault)

    async def _stream(self, after: int) -> AsyncIterator[Any]:
        reader, writer = await asyncio.open_unix_connection(self._socket, limit=ANSWER_BYTES_MAX)
        try:
            writer.write(_request(0, {"method": "events.follow", "params": {"after": after}}))
            while (line := await reader.readline()).endswith(b"\n"):  # half a line is none
                message = msgspec.json.decode(line)
                if "error" in message:
                    raise _refusal(message["error"])
                yield message["params"]
        finally:
            writer.close()

    async def _ask(self, asked: dict[str, object]) -> Any:
        try:
            return await self._ask_once(asked)
        except NodeRefused:
            raise
        except BaseException:  # also a cancelled call: its answer must not be taken for the next one's
            await self.close()
            raise

    async def _ask_once(self, asked: dict[str, object]) -> Any:
        if self._streams is None:
            self._streams = await asyncio.open_unix_connection(self._socket, limit=ANSWER_BYTES_MAX)
        reader, writer = self._streams
        id_ = next(self._ids)
        writer.write(_request(id_, asked))
        await writer.drain()
        line = await reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError("the node hung up")
        message = msgspec.json.decode(line)
        if "error" in message:
            raise _refusal(message["error"])
        if message["id"] != id_:
            raise EOFError(f"an answer to {message['id']}, not to {id_}")
        return message["result"]


class _Patience:
    """Growing pauses until the patience is used up."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s, self._wait_s = patience_s, _RETRY_FIRST_S
        self._deadline = asyncio.get_running_loop().time() + patience_s

    async def wait(self, socket: Path, fault: Exception) -> None:
        if asyncio.get_running_loop().time() + self._wait_s > self._deadline:
            raise NodeUnreachable(f"no answer from {socket} for {self._patience_s:g} s: {fault}") from fault
        await asyncio.sleep(self._wait_s)
        self._wait_s = min(2 * self._wait_s, _RETRY_MAX_S)


def _request(id_: int, asked: dict[str, object]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id_, **asked}) + b"\n"


def _refusal(error: dict[str, Any]) -> NodeRefused:
    data = error.get("data") or {}
    return NodeRefused(
        error["code"],
        data.get("name", ""),
        data.get("rule", ""),
        error["message"],
        data.get("hint", ""),
        data.get("about"),
    )
