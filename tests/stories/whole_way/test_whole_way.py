"""The whole way in one story: every process is killed, every line is cut, blocks are rolled back, and all is well.

A node, a gateway as its archive, three agents of whom one lies and one has a full disk, and a client over HTTP with a
token; jobs of each kind, done by models that come with Holdfast, by a shell program, a Python function and a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.counts import counts
from tests.storage.stores import Place
from tests.stories.small_disk import small_disk
from tests.stories.whole_way.final_checks import FinalChecks
from tests.stories.whole_way.network import FULL, PATIENCE_S, WholeNetwork
from tests.stories.whole_way.story_jobs import StoryJob, story_jobs

from holdfast import AsyncClient
from holdfast.client.answers import JobOutcome, JobReceipt
from holdfast.core.job.model import JobState

SEED = 20261118
OF_EACH_KIND = counts(6, 240)
ROUNDS = counts(1, 8)
DISK_MIB = 16
DEPOSIT = 10**9


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
async def network(
    request: pytest.FixtureRequest, place: Place, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[WholeNetwork]:
    (marks := place.folder / "marks").mkdir()
    monkeypatch.setenv("MARKS", str(marks))
    with small_disk(place.folder / FULL, DISK_MIB) as disk:
        made = WholeNetwork(Place(place.folder, place.server), request.param, disk, SEED)
        try:
            yield made
        finally:
            await made.end()


@pytest.mark.timeout(counts(240, 1_800))
@pytest.mark.rule("JOB-002", "JOB-006", "JOB-010", "JOB-012", "EVD-002", "EVD-005", "EVD-006", "EVT-002", "PRF-003")
@pytest.mark.rule("RES-008", "RES-009", "CHN-003", "ARC-001", "ARC-004", "PRU-001", "RET-002", "ESC-001", "ESC-003")
async def test_every_job_ends_once_and_every_byte_is_kept_whatever_breaks(network: WholeNetwork) -> None:
    tokens = await network.begin()
    jobs = story_jobs(OF_EACH_KIND)
    async with AsyncClient(network.url, tokens["treasurer"], timeout_s=PATIENCE_S) as treasurer:
        await treasurer.call("account.deposit", owner="alice", amount=DEPOSIT, reference="1", reason="story")
    async with AsyncClient(network.url, tokens["alice"], timeout_s=PATIENCE_S) as client:
        receipts = await enqueue(client, jobs)
        outcomes: dict[str, JobOutcome] = {}
        consuming = asyncio.create_task(consume(client, receipts, outcomes))
        planned = network.plan(ROUNDS)
        for number, disturb in enumerate(planned):
            while len(outcomes) * (len(planned) + 1) < number * len(jobs) and not consuming.done():
                await asyncio.sleep(0.01)
            await disturb()
            if number == 0:
                await cancel(client, jobs, receipts)
        await consuming
        network.disk.empty()
        checks = FinalChecks(network, client, dict(zip((each.task_id for each in receipts), jobs, strict=True)))
        await checks.run(outcomes, tokens["bob"])


async def enqueue(client: AsyncClient, jobs: list[StoryJob]) -> list[JobReceipt]:
    refs = [await client.upload(job.input) if job.is_uploaded and job.input is not None else None for job in jobs]
    receipts = await client.enqueue_many(job.request(ref) for job, ref in zip(jobs, refs, strict=True))
    assert len({each.task_id for each in receipts}) == len(jobs)
    return receipts


async def cancel(client: AsyncClient, jobs: list[StoryJob], receipts: list[JobReceipt]) -> None:
    for job, receipt in zip(jobs, receipts, strict=True):
        if job.state is JobState.CANCELLED:
            await client.cancel(receipt)


async def consume(client: AsyncClient, receipts: list[JobReceipt], outcomes: dict[str, JobOutcome]) -> None:
    async for outcome in client.as_completed(receipts):
        assert outcome.task_id not in outcomes, "each is told once"
        outcomes[outcome.task_id] = outcome
