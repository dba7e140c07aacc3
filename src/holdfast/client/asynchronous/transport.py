"""HTTP requests that are repeated until there is an answer or the time is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from holdfast.client.errors import NodeRefused
from holdfast.client.node_url import NodeUrl
from holdfast.client.replies import ProxyAnswer, read_answer, read_answers, read_refusal, rpc_request
from holdfast.client.retries import RetryDelay, is_transient
from holdfast.core.base.errors import Unavailable

JSON: Final = {"Content-Type": "application/json"}
ERRORS_FROM: Final = 400


class AsyncTransport:
    """The connections to one node."""

    def __init__(self, node: NodeUrl, timeout_s: float, answer_timeout_s: float) -> None:
        self.node, self.timeout_s, self.answer_timeout_s = node, timeout_s, answer_timeout_s
        local = httpx.AsyncHTTPTransport(uds=node.socket) if node.socket is not None else None
        try:
            self._http = httpx.AsyncClient(
                transport=local,
                base_url=node.base,
                headers=node.headers,
                verify=node.tls,
                timeout=answer_timeout_s,
            )
        except (httpx.InvalidURL, UnicodeError) as fault:
            raise Unavailable(
                "RPC-001", f"{node.base!r:.80} is not a URL: {fault}", "write http://127.0.0.1:8451"
            ) from fault

    async def aclose(self) -> None:
        await self._http.aclose()

    def _check_socket(self) -> None:
        """Said here, since a library that fails to connect to a socket leaves one open."""
        if self.node.socket is not None and not Path(self.node.socket).exists():
            raise httpx.ConnectError("there is no such socket")

    def delay(self) -> RetryDelay:
        return RetryDelay(str(self.node), self.timeout_s)

    async def call(self, method: str, params: Mapping[str, object]) -> Any:
        """Repeated after a lost connection, too: a command takes effect at most once, by its id or its key."""
        body, delay = msgspec.json.encode(rpc_request(method, dict(params))), self.delay()
        while True:
            try:
                self._check_socket()
                response = await self._http.post("/rpc", content=body, headers=JSON)
                return read_answer(response.content, response.status_code)
            except (httpx.TransportError, ProxyAnswer) as error:
                fault: Exception = error
            except NodeRefused as refusal:
                if not is_transient(refusal):
                    raise
                fault = refusal
            await asyncio.sleep(delay.next_s(fault))

    async def batch(self, method: str, params: Sequence[Mapping[str, object]]) -> list[Any]:
        """The same call with each of these parameters: results and refusals, in their order."""
        answers: list[Any] = [None] * len(params)
        waiting, delay = list(range(len(params))), self.delay()
        while waiting:
            requests = [rpc_request(method, dict(params[at]), at) for at in waiting]
            try:
                self._check_socket()
                response = await self._http.post("/rpc", content=msgspec.json.encode(requests), headers=JSON)
                found = read_answers(response.content, response.status_code)
            except (httpx.TransportError, ProxyAnswer) as error:
                await asyncio.sleep(delay.next_s(error))
                continue
            if isinstance(found, NodeRefused):  # of the whole message
                if not is_transient(found):
                    raise found
                await asyncio.sleep(delay.next_s(found))
                continue
            for at, answer in zip(waiting, found, strict=True):
                answers[at] = answer
            waiting = [at for at in waiting if isinstance(answers[at], NodeRefused) and is_transient(answers[at])]
            if waiting:
                await asyncio.sleep(delay.next_s(answers[waiting[0]]))
        return answers

    @asynccontextmanager
    async def stream(
        self,
        verb: str,
        path: str,
        *,
        headers: Mapping[str, str],
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
        read_timeout_s: float | None = None,
    ) -> AsyncGenerator[httpx.Response, None]:
        """One try of a request whose answer is read in parts; a refusal is raised."""
        self._check_socket()
        timeout = httpx.Timeout(self.answer_timeout_s, read=read_timeout_s or self.answer_timeout_s)
        async with self._http.stream(
            verb, path, headers=dict(headers), params=params, content=content, timeout=timeout
        ) as response:
            if response.status_code >= ERRORS_FROM:
                raise read_refusal(await response.aread(), response.status_code)
            yield response
