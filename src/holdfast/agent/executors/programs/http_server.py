"""`--http`: a server that speaks HTTP, for example the API of OpenAI. The input of the job is the body of a request.

A 2xx body is the output, whole. What comes in parts is passed on while it comes, as progress that proves nothing.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import httpx

from holdfast.agent.executors.contract import ExecutorIsolation, TypedOutput, Work, WorkDeclined, WorkFailed
from holdfast.agent.executors.programs.limits import WorkLimits
from holdfast.agent.executors.programs.program import canonical_json
from holdfast.workloads.invalid_input import InvalidJobInput

INVALID_STATUSES: Final = frozenset({400, 413, 415, 422})
BUSY_STATUSES: Final = frozenset({429, 503})
STREAMED: Final = ("text/event-stream", "application/x-ndjson", "application/jsonl")
CONNECT_S: Final = 10.0
TEXT_MAX: Final = 500
JSON: Final = "application/json"


class HttpServerExecutor:
    """Posts inputs to one URL."""

    isolation = ExecutorIsolation.ASYNC

    def __init__(self, url: str, limits: WorkLimits) -> None:
        self._url, self._limits = url, limits
        self._client: httpx.AsyncClient | None = None

    async def probe(self) -> str:
        """Why it cannot answer; empty where its port accepts connections."""
        url = httpx.URL(self._url)
        try:
            _, writer = await asyncio.open_connection(url.host, url.port or (443 if url.scheme == "https" else 80))
        except OSError as fault:
            return str(fault)
        writer.close()
        return ""

    async def run_async(self, work: Work) -> TypedOutput:
        if self._client is None:  # in the event loop that uses it; the lease's deadline is the only limit of a read
            self._client = httpx.AsyncClient(timeout=httpx.Timeout(None, connect=CONNECT_S), trust_env=False)
        body, kind = await _request_body(work)
        headers = {"content-type": kind, "accept-encoding": "identity", "holdfast-task-id": work.task_id.hex()}
        try:
            async with self._client.stream("POST", self._url, content=body, headers=headers) as response:
                raw = await self._read(response, work)
        except httpx.ConnectError as fault:
            raise WorkDeclined(f"no server answers at {self._url}: {fault}") from fault
        except httpx.HTTPError as fault:
            raise WorkFailed(f"PROVIDER_FAIL: {type(fault).__name__}: {fault}") from fault
        if response.is_success:
            return TypedOutput(raw, response.headers.get("content-type", ""))
        said = f"HTTP {response.status_code}: {raw[:TEXT_MAX].decode('utf-8', 'replace')}"
        if response.status_code in INVALID_STATUSES:
            raise InvalidJobInput(said)
        if response.status_code in BUSY_STATUSES:
            raise WorkDeclined(said)
        raise WorkFailed(f"PROVIDER_FAIL: {said}")

    async def _read(self, response: httpx.Response, work: Work) -> bytes:
        raw, limit = bytearray(), self._limits.output_bytes_max
        is_streamed = response.is_success and response.headers.get("content-type", "").startswith(STREAMED)
        async for part in response.aiter_raw():
            raw += part
            if len(raw) > limit:
                raise WorkFailed(f"OUTPUT_TOO_LARGE: more than {limit} bytes")
            if is_streamed:
                work.report(None, part.decode("utf-8", "replace"))
        return bytes(raw)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


async def _request_body(work: Work) -> tuple[bytes, str]:
    payload = work.payload
    if payload.input is None:
        return canonical_json(payload.spec).encode(), JSON
    return await asyncio.to_thread(Path(payload.input_file).read_bytes), payload.input.media_type
