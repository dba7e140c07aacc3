"""What others see of private jobs, on every surface of a running node: that they exist, and nothing else (JOB-010)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Collection
from contextlib import suppress
from typing import Any, NamedTuple

import grpc
import httpx
import pytest

from holdfast import AsyncClient
from holdfast.api.http.beacon.blob_endpoint import PREFIX as BLOBS
from holdfast.api.rpc.methods import METHODS
from holdfast.client import NodeRefused
from holdfast.wire.gen.holdfast.result.v1 import result_pb2, result_pb2_grpc

PATIENCE_S = 120.0
TOO_MANY = 429
ANYBODY = ("/", "/metrics", "/readyz", "/v1/session")
"""Pages without an id, for people and machines."""
FRAMES = 2
"""Of the page's own stream: the whole overview is in them."""


class PrivateJob(NamedTuple):
    """A job of which another tenant must learn nothing."""

    task_id: str
    caller: str
    word: str
    """It is in the payload, the input, the output and the logs, in capital or small letters."""
    input_digest: str | None = None
    reason: str = ""
    """Why it ended without a result; that it did is public, why is not."""


class Surfaces:
    """A running node, as one who is not the caller reaches it; everything that it says is kept."""

    def __init__(self, http_url: str, grpc_port: int, token: str | None) -> None:
        self._url, self._grpc_port, self._token = http_url, grpc_port, token
        self.said: dict[str, bytes] = {}
        """By what was asked."""

    def _open(self) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        return httpx.AsyncClient(base_url=self._url, headers=headers, timeout=PATIENCE_S)

    async def read_pages(self, heights: Collection[int]) -> None:
        """What is there without an id: pages, blobs by their height, the page's own stream, and the events."""
        async with self._open() as http:
            for path in (*ANYBODY, *(f"{BLOBS}{height}" for height in heights)):
                self.said[path] = (await _ask(http, "GET", path)).content
            async with http.stream("GET", "/v1/live") as live:
                frames = live.aiter_bytes()
                with suppress(StopAsyncIteration):
                    self.said["/v1/live"] = b"".join([await anext(frames) for _ in range(FRAMES)])
        if self._token is not None:
            await self._follow_events()

    async def ask_about(self, job: PrivateJob) -> None:
        async with self._open() as http:
            await self._ask_methods(http, job)
            for path in (f"/v1/outputs/{job.task_id}", f"/v1/jobs/{job.task_id}/logs"):
                answer = await _ask(http, "GET", path, params={"follow": "false"})
                assert answer.status_code in (401, 403, 404, 410), (path, answer.status_code)
                self.said[path] = answer.content
            await self._ask_input(http, job)
        await self._ask_grpc(job)

    async def _ask_methods(self, http: httpx.AsyncClient, job: PrivateJob) -> None:
        """Every method that reads, with all parameters that can point at the job."""
        known = {"task_id": job.task_id, "id": job.task_id, "caller": job.caller, "owner": job.caller}
        known |= {"account": job.caller, "text": job.task_id[:16]}
        for name, method in sorted(METHODS.items()):
            if method.is_write:
                continue
            params = {each: known[each] for each in method.params.__struct_fields__ if each in known}
            asked = {"jsonrpc": "2.0", "id": 1, "method": name, "params": params}
            answer = (await _ask(http, "POST", "/rpc", json=asked)).content
            said_ourselves = job.caller.encode() if {"caller", "owner", "account"} & params.keys() else b"\0"
            self.said[name] = answer.replace(said_ourselves, b"")

    async def _ask_input(self, http: httpx.AsyncClient, job: PrivateJob) -> None:
        """Whether somebody has uploaded these bytes is not told: they look as if they were never there."""
        if job.input_digest is None:
            return
        known = await _ask(http, "HEAD", f"/v1/inputs/{job.input_digest}")
        unknown = await _ask(http, "HEAD", f"/v1/inputs/{'ab' * 32}")
        assert (known.status_code, known.headers.get("upload-offset")) == (
            unknown.status_code,
            unknown.headers.get("upload-offset"),
        )

    async def _ask_grpc(self, job: PrivateJob) -> None:
        metadata = (("authorization", f"Bearer {self._token}"),) if self._token else ()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self._grpc_port}") as channel:
            stub: Any = result_pb2_grpc.ResultServiceStub(channel)  # type: ignore[no-untyped-call]
            for call, asked in (
                (stub.GetResult, result_pb2.GetResultRequest(task_id=bytes.fromhex(job.task_id))),
                (stub.ReadResult, result_pb2.ReadResultRequest(task_id=bytes.fromhex(job.task_id))),
            ):
                try:
                    said = (await call(asked, metadata=metadata, timeout=PATIENCE_S)).SerializeToString()
                except grpc.aio.AioRpcError as refusal:
                    said = (refusal.details() or "").encode()
                self.said[f"grpc {asked.DESCRIPTOR.name}"] = said

    async def _follow_events(self) -> None:
        """All events until now, and those that are told by then."""
        async with AsyncClient(self._url, self._token, timeout_s=PATIENCE_S) as client, asyncio.timeout(PATIENCE_S):
            last, told = (await client.status()).event, list[str]()
            async for event in client.events(after=0):
                told.append(repr(event))
                if event.number >= last:
                    break
        self.said["/events"] = "\n".join(told).encode()


async def _ask(http: httpx.AsyncClient, method: str, path: str, **asked: Any) -> httpx.Response:
    """One that asks too often is told so, and asks again."""
    async with asyncio.timeout(PATIENCE_S):
        while (answer := await http.request(method, path, **asked)).status_code == TOO_MANY:
            await asyncio.sleep(0.1)
    return answer


async def check_nothing_private_seen(
    http_url: str, grpc_port: int, token: str, jobs: Collection[PrivateJob], heights: Collection[int] = ()
) -> None:
    """By another tenant and by nobody in particular; `heights` are of blocks whose blobs hold outputs."""
    for each in (token, None):
        surfaces = Surfaces(http_url, grpc_port, each)
        await surfaces.read_pages(heights)
        for job in jobs:
            await surfaces.ask_about(job)
            found = {name for name, said in surfaces.said.items() if any(form in said.lower() for form in _forms(job))}
            about = ("cap.getJob", "cap.getResult", "aicf.getJob", f"/v1/outputs/{job.task_id}")
            found |= {name for name in about if job.reason and job.reason.encode() in surfaces.said[name]}
            assert not found, (job, {name: surfaces.said[name][:2_000] for name in found})
        assert len(surfaces.said) > len(ANYBODY)
    async with AsyncClient(http_url, token, timeout_s=PATIENCE_S) as stranger:
        for job in jobs:
            for act in (stranger.result, stranger.cancel):
                with pytest.raises(NodeRefused) as refused:
                    await act(job.task_id)
                assert job.word not in str(refused.value).lower()


def _forms(job: PrivateJob) -> set[bytes]:
    """The words as text, in hex, and in base64 wherever they may begin, all in small letters."""
    forms = {job.caller.encode(), job.word.encode()}
    for word in (job.word.encode(), job.word.upper().encode()):
        forms.add(word.hex().encode())
        forms |= {base64.b64encode(b"x" * shift + word)[4:-4].lower() for shift in range(3)}
    return forms
