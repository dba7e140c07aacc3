"""What a requester imports: jobs in, verified outputs out, over HTTP or over the socket of the node's folder.

    async with AsyncClient("https://node.example:8451", token="hf_…") as client:
        receipt = await client.enqueue({"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}, max_fee=100)
        result = await client.wait(receipt)
        output = await client.result(result)

A call that returns is durable. A call that raises a refusal changed nothing. Calls are repeated after a lost
connection with the same nonce and key, so that each takes effect at most once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec

from holdfast.client.answers import (
    CancelReply,
    Job,
    JobLogEntry,
    JobOutcome,
    JobQuote,
    JobReceipt,
    JobResult,
    NodeEvent,
    StatusReport,
    task_id_of,
)
from holdfast.client.asynchronous.bulk import AsyncBulk, Progress
from holdfast.client.asynchronous.completions import EVENTS_PATH, AsyncCompletions, EventCallback
from holdfast.client.asynchronous.downloads import AsyncDownloads, ShowBytes, Verify
from holdfast.client.asynchronous.event_follower import AsyncEventFollower
from holdfast.client.asynchronous.schedules import AsyncJobSchedules
from holdfast.client.asynchronous.transport import AsyncTransport
from holdfast.client.asynchronous.uploads import AsyncInputUploads
from holdfast.client.input_source import Input, inline_input
from holdfast.client.job_lines import JobRequest, repeatable, windows
from holdfast.client.node_url import find_node
from holdfast.client.replies import read_event, read_log_entry, typed
from holdfast.core.job.input_ref import OCTETS

TIMEOUT_S: Final = 30.0
"""How long a call is repeated in all."""
ANSWER_TIMEOUT_S: Final = 10.0
"""After this time without an answer the call is repeated on a new connection."""
AHEAD: Final = 1_000
Payload = Mapping[str, Any]


class AsyncClient:
    """A node, and what a requester does with it.

    `node` is a URL, or the Path of a node's folder; without it HOLDFAST_URL, else `./holdfast-data`. The token is an
    API key's, by default HOLDFAST_TOKEN; a local client needs none and is an operator, who names the `caller` of jobs.
    """

    def __init__(
        self,
        node: str | Path | None = None,
        token: str | None = None,
        *,
        ca: Path | None = None,
        timeout_s: float = TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        self._transport = AsyncTransport(find_node(node, token, ca), timeout_s, answer_timeout_s)
        self.schedules = AsyncJobSchedules(self._transport)
        """Jobs that are enqueued again and again (JOB-014)."""

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    # ------------------------------------------------------------------------------------ jobs in

    async def enqueue(
        self,
        payload: Payload,
        max_fee: int,
        *,
        caller: str | None = None,
        input: Input | None = None,
        media_type: str = OCTETS,
        idempotency_key: str | None = None,
        nonce: int | None = None,
        not_before_ms: int = 0,
    ) -> JobReceipt:
        """Enqueue a job. Two calls with the same idempotency key are one job; by default each call has its own.

        `input` are bytes or a file: a small one goes with the job, a large one is uploaded before it. With
        `not_before_ms`, milliseconds since 1970, its fee is reserved now and it is not assigned before that time.
        """
        inline = None
        if input is not None:
            inline = inline_input(input)
            named = {"media_type": media_type} if inline is not None else None
            payload = {**payload, "input": named or await self.upload(input, media_type=media_type, caller=caller)}
        request = JobRequest(payload, max_fee, caller, nonce, idempotency_key, inline, not_before_ms)
        params = msgspec.to_builtins(repeatable(request))
        return typed(JobReceipt, await self._transport.call("cap.enqueue", params))

    async def upload(self, input: Input, *, media_type: str = OCTETS, caller: str | None = None) -> dict[str, object]:
        """Upload an input that many jobs share, or that is large; the answer is for `payload["input"]`."""
        return await AsyncInputUploads(self._transport, caller).upload(input, media_type)

    async def enqueue_many(
        self,
        jobs: Iterable[Payload | JobRequest],
        max_fee: int = 1_000,
        *,
        caller: str | None = None,
        progress: Progress | None = None,
    ) -> list[JobReceipt]:
        """Enqueue jobs in their order and return their receipts in it; `jobs` is read as the node has room.

        `max_fee` and `caller` are of payloads; a JobRequest has its own. `progress` is called with the number of jobs
        in the queue so far. Where a job is refused for good JobsRefused is raised, which also has the receipts.
        """
        requests = (job if isinstance(job, JobRequest) else JobRequest(job, max_fee, caller) for job in jobs)
        return await AsyncBulk(self._transport, progress).enqueue(requests)

    async def cancel(self, job: Job) -> CancelReply:
        """Cancel a job; its reservation is refunded."""
        return typed(CancelReply, await self._transport.call("cap.cancel", {"task_id": task_id_of(job)}))

    async def quote(self, payload: Payload, max_fee: int = 1_000, *, caller: str | None = None) -> JobQuote:
        """Which providers could run such a job now, and why the others could not; nothing is enqueued (JOB-008)."""
        params = {"payload": payload, "max_fee": max_fee, "caller": caller}
        return typed(JobQuote, await self._transport.call("cap.getQuote", params))

    # ------------------------------------------------------------------------------------ results out

    async def wait(self, job: Job, timeout_s: float | None = None) -> JobResult:
        """The result as soon as it is readable; raises JobEnded where there will be none, WaitTimeout where it is late.

        It follows events, through restarts of the node and reorgs, and asks nothing while nothing happens.
        """
        async with aclosing(self.as_completed([job], timeout_s)) as outcomes:
            async for outcome in outcomes:
                return outcome.unwrap()
        raise AssertionError("a job that is waited for has an outcome")

    async def as_completed(
        self, jobs: Iterable[Job], timeout_s: float | None = None, *, progress: EventCallback | None = None
    ) -> AsyncGenerator[JobOutcome, None]:
        """How each job ended, as they end, each once. Receipts are better than ids: they say when a job began.

        `progress` is called with the name of each event of these jobs, such as `jobAssigned`.
        """
        async with aclosing(AsyncCompletions(self._transport, jobs, timeout_s, progress).outcomes()) as outcomes:
            async for outcome in outcomes:
                yield outcome

    async def map(
        self,
        jobs: Iterable[Payload | JobRequest],
        max_fee: int = 1_000,
        *,
        caller: str | None = None,
        ahead: int = AHEAD,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """The outputs of jobs in their order. At most `ahead` of them are enqueued before the first is awaited."""
        for window in windows(jobs, ahead):
            receipts = await self.enqueue_many(window, max_fee, caller=caller)
            ended, order = dict[str, JobOutcome](), [receipt.task_id for receipt in reversed(receipts)]
            async with aclosing(self.as_completed(receipts, timeout_s)) as outcomes:
                async for outcome in outcomes:
                    ended[outcome.task_id] = outcome
                    while order and order[-1] in ended:
                        yield await self.result(ended.pop(order.pop()).unwrap())

    async def get_result(self, job: Job) -> JobResult:
        """The record of a result that is readable now; NoResultYetError where it is not."""
        return typed(JobResult, await self._transport.call("cap.getResult", {"task_id": task_id_of(job)}))

    async def result(self, job: Job | JobResult, *, verify: Verify = False) -> bytes:
        """The output, always checked against the digest in the chain; with `verify` its proof, too."""
        record = job if isinstance(job, JobResult) else await self.get_result(job)
        return await AsyncDownloads(self._transport).read(record, verify)

    async def download(
        self, job: Job | JobResult, path: str | Path, *, verify: Verify = False, progress: ShowBytes | None = None
    ) -> JobResult:
        """Write the output to a file, which appears when it is complete and right; a broken download is resumed."""
        record = job if isinstance(job, JobResult) else await self.get_result(job)
        await AsyncDownloads(self._transport).write(record, Path(path), verify, progress)
        return record

    # ------------------------------------------------------------------------------------ what happens

    async def events(
        self, after: int | str | None = None, types: Iterable[str] | None = None, *, follow: bool = True
    ) -> AsyncGenerator[NodeEvent, None]:
        """Events after a cursor, then new ones, each once; without a cursor, new ones. Keep the last `cursor`.

        Without `follow` it ends at the newest event.
        """
        params = ({} if types is None else {"types": ",".join(types)}) | ({} if follow else {"follow": "false"})
        follower = AsyncEventFollower(self._transport, EVENTS_PATH, params)
        if after is None:
            after = (await self.status()).event
        async with aclosing(follower.batches(str(after))) as batches:
            async for frames in batches:
                for _, _, data in frames:
                    yield read_event(data)

    async def logs(
        self, job: Job, after: str | None = None, *, follow: bool = True
    ) -> AsyncGenerator[JobLogEntry, None]:
        """What a job reports while it runs: progress and log lines, until it ends. Nothing proves them.

        `after` is the `cursor` of the last entry that was seen; without `follow` it is what there is by now.
        """
        path = f"/v1/jobs/{task_id_of(job)}/logs"
        follower = AsyncEventFollower(self._transport, path, {"follow": "true" if follow else "false"})
        async with aclosing(follower.batches(after)) as batches:
            async for frames in batches:
                for _, _, data in frames:
                    yield read_log_entry(data)

    async def status(self) -> StatusReport:
        """Which node answers, and how far it is."""
        return typed(StatusReport, await self._transport.call("node.getStatus", {}))

    async def call(self, method: str, **params: object) -> Any:
        """Any method of the node, as `openrpc.json` describes it."""
        return await self._transport.call(method, params)
