"""Methods about blobs: the status of a height at every stage, what may be pruned, retry, prune, audit, and metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.api.http.http_node import HttpNode, http_server, name_of, request
from tests.workers.archive.archive_node import ArchiveNode, archive_policy

from holdfast.core.archive.messages import RecallBlobs
from holdfast.core.base.values import Height
from holdfast.core.blob.framing import BLOB_BYTES
from holdfast.core.key.model import Role
from holdfast.engine.queries.archive.stored_blobs import stored_blobs

LARGE = bytes(range(256)) * 1_500


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ArchiveNode]:
    node = ArchiveNode(archive_policy(attempts_max=1), tmp_path)
    await node.open_with_provider()
    yield node
    await node.kill()


class BlobApi:
    """The methods, asked by an operator."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def call(self, method: str, **params: Any) -> Any:
        return (await self._client.post("/rpc", json=request(method, **params))).json()["result"]

    async def refused(self, method: str, **params: Any) -> str:
        return name_of(await self._client.post("/rpc", json=request(method, **params)))

    async def status(self, height: Height) -> str:
        return str((await self.call("blob.status", height=height))["status"])

    async def metrics(self) -> dict[str, float]:
        """Every sample by its name, and its label where it has one."""
        text = (await self._client.get("/metrics")).text
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return {"/".join([each.name, *(each.labels[name] for name in each.labels)]): each.value for each in samples}


@pytest.fixture
async def api(node: ArchiveNode) -> AsyncIterator[BlobApi]:
    access = node.access()
    async with http_server(access, node.world) as server:
        http = HttpNode(node.world, node.engine, access, server)
        async with http.client(await http.token(Role.OPERATOR)) as client:
            yield BlobApi(client)


@pytest.mark.rule("BLB-002", "ARC-003", "PRU-001", "PRU-002")
async def test_the_status_of_a_height_is_told_from_the_open_block_until_its_bytes_are_gone(
    node: ArchiveNode, api: BlobApi
) -> None:
    await node.resolve(b"", seals=1)
    assert (await api.call("archive.getStatus"))["unpacked"] == 0, "an empty output is in no blob"
    await node.resolve(b"out", seals=1)
    status, head = await api.call("archive.getStatus"), node.engine.undurable_state.chain.head.height
    assert (status["unpacked"], status["unpacked_height"], status["head"], status["pending"]) == (1, head, head, 0)
    await node.packer.run_once()
    status = await api.call("archive.getStatus")
    assert (status["unpacked"], status["unpacked_height"], status["pending"]) == (0, 0, 1)
    height = node.engine.undurable_state.open_height
    assert (await api.status(height), await api.status(Height(0))) == ("open", "none")
    await node.seal(3)
    await node.packer.run_once()
    assert await api.status(height) == "pending"
    node.provider.faults_before = 1
    await node.archiver.run_once()
    assert await api.status(height) == "stalled"
    assert (await api.call("archive.getStatus"))["stalled"] == 1
    assert await api.call("blob.listArchivable") == []
    assert (await api.call("blob.prune", height=height + 1))["kept"] == {
        str(height): f"0 of 1 blobs of height {height} are archived"
    }
    assert (await api.call("blob.retry", height=height))["is_repeat"] is False
    await node.archiver.run_once()
    assert await api.status(height) == "archived"
    assert (await api.call("blob.retry"))["is_repeat"] is True  # nothing has failed
    assert await api.call("blob.listArchivable") == [height]
    assert (await api.call("blob.prune", height=height))["pruned"] == []  # below, not at
    assert (await api.call("blob.prune", height=height + 1))["pruned"] == [height]
    assert (await api.status(height), await api.call("blob.listArchivable")) == ("pruned", [])
    view = (await api.call("blob.status", height=height))["blobs"][0]
    assert view["locator"].startswith("file:test/items/")
    assert (view["assurance"], view["archived_at"] > 0, len(view["archived_by"])) == ("verified", True, 40)
    assert await api.refused("blob.status", height=node.engine.undurable_state.open_height + 1) == "NotFound"


@pytest.mark.rule("PRU-001", "OBS-001")
async def test_bytes_that_nobody_has_are_lost_wait_for_nothing_and_say_so(node: ArchiveNode, api: BlobApi) -> None:
    await node.resolve(b"out", seals=1)
    await node.pack_final()
    height = node.lives[0].blob.height
    await node.let_go()
    lives = tuple(await stored_blobs(node.engine, height))
    await node.engine.submit(RecallBlobs(lives, (0,), "the archive does not have it", are_here=False))
    status = await api.call("archive.getStatus")
    assert (status["lost"], status["pending"], status["lag_blocks"], status["backlog_height"]) == (1, 0, 0, 0)
    assert await api.status(height) == "suspect"
    assert [alert["rule"] for alert in (await api.call("node.getOverview"))["alerts"]] == ["PRU-001"]


@pytest.mark.rule("ARC-004", "RPC-001")
async def test_an_audit_reads_about_as_many_back_as_were_asked_for(node: ArchiveNode, api: BlobApi) -> None:
    for number in range(6):
        await node.resolve(bytes([number]), seals=1)
        await node.pack_final()
    await node.archiver.run_once()
    await node.engine.wait_tables()
    node.provider.fetches.clear()
    assert await api.refused("blob.audit", sample=-1) == "InvalidParams"
    await api.call("blob.audit", sample=3)
    while not (report := await api.call("blob.getAudit"))["is_done"]:
        pass
    assert (report["checked"], report["total"], report["faults"]) == (3, 3, [])
    assert len(node.provider.fetches) == 3


FAMILIES = {
    "blob": "archival_attempts_total archived_total pruned_total prune_failures_total pruner_backlog_height "
    "archival_lag_blocks",
    "archiver": "jobs_success_total jobs_failure_total upload_success_total upload_failures_total upload_bytes_total "
    "receipt_mismatch_total pruned_total served_total served_archived_total queue_len backlog_height archived_bytes "
    "pruned_bytes upload_duration_seconds_count upload_blob_duration_seconds_count notice_propagation_seconds_count",
    "sync": "failures_total",
}
"""The names that operators of existing nodes watch."""


@pytest.mark.rule("OBS-001", "ARC-003", "PRU-002")
async def test_both_families_of_metrics_say_what_became_of_every_blob(node: ArchiveNode, api: BlobApi) -> None:
    await node.resolve(LARGE, seals=1)
    await node.pack_final()
    height = node.lives[0].blob.height
    node.provider.lie = lambda _: None
    await node.archiver.run_once()
    before = await api.metrics()
    assert (before["blob_archival_attempts_total/err"], before["archiver_jobs_failure_total"]) == (4, 1)
    assert before["archiver_receipt_mismatch_total"] == 4
    assert (before["archiver_queue_len"], before["archiver_backlog_height"]) == (4, height)
    assert before["archiver_stalled"] == 4  # one has failed, and all of its height wait for it
    assert before["blob_archival_lag_blocks"] == before["archiver_backlog_height"] > 0
    node.provider.lie = lambda raw: raw
    await api.call("blob.retry")
    await node.archiver.run_once()
    await node.pruner.run_once()
    node.archiver.metrics.notices_refused["KeccakMismatch"] += 1
    found = await api.metrics()
    assert (found["blob_archival_attempts_total/ok"], found["archiver_upload_success_total"]) == (4, 4)
    assert (found["blob_archived_total"], found["archiver_archived_bytes"]) == (4, 4 * BLOB_BYTES)
    assert (found["blob_pruned_total"], found["archiver_pruned_bytes"]) == (4, 4 * BLOB_BYTES)
    waiting = ("archiver_queue_len", "archiver_backlog_height", "blob_archival_lag_blocks")
    assert {found[name] for name in waiting} == {0}
    assert found["archiver_upload_blob_duration_seconds_count"] == 4
    names = {name.split("/")[0] for name in found}
    wanted = {f"{family}_{name}" for family, told in FAMILIES.items() for name in told.split()}
    assert wanted - names == set()
