"""What must hold when everything has ended: jobs, money, results, bytes, evidence, and what others have seen of it."""

from __future__ import annotations

import asyncio
import csv
import json
from collections import Counter, defaultdict

from tests.counts import counts
from tests.storage.stores import JOURNALS, Place
from tests.stories.faults.test_attack import sums_of_accounts
from tests.stories.faults.test_jobs_exactly_once import stored_evidence
from tests.stories.tenant_view import PrivateJob, check_nothing_private_seen
from tests.stories.whole_way.network import LIAR, PATIENCE_S, WholeNetwork
from tests.stories.whole_way.story_jobs import WORD, StoryJob

from holdfast import AsyncClient
from holdfast.agent.leases.records import (
    ACCEPTED,
    COMPLETED,
    FAILED,
    OUTCOMES,
    PROGRESS,
    READY,
    STARTED,
    read_lease_record,
)
from holdfast.client.answers import JobOutcome
from holdfast.client.node_socket import NodeSocket
from holdfast.core.job.input_ref import input_digest
from holdfast.core.job.model import JobState
from holdfast.core.result import result_digest
from holdfast.demo.event_history import EventHistory, LeaseTrace, read_from_node
from holdfast.demo.spools import last_spooled
from holdfast.spool.files.record import BLOCK_FENCE

REPORTED = ("PROVIDER_FAIL", "INVALID_INPUT", "PROOF_INVALID", "METRICS_UNMET")
"""Ends of leases that follow from what the provider said."""
PHASES = {ACCEPTED: 0, STARTED: 1, PROGRESS: 1, READY: 2, COMPLETED: 3, FAILED: 3, BLOCK_FENCE: 4}
"""The order of a lease's records; an execution that a kill has cut short begins anew."""


class FinalChecks:
    """Of one run; `jobs` by task id."""

    def __init__(self, network: WholeNetwork, client: AsyncClient, jobs: dict[str, StoryJob]) -> None:
        self._network, self._client, self._jobs = network, client, jobs
        self._large: list[str] = []
        """Jobs whose output the archive has."""

    async def run(self, outcomes: dict[str, JobOutcome], stranger: str) -> None:
        node = self._network.node
        async with NodeSocket(node.data, PATIENCE_S) as socket:
            await self._check_ends(socket, outcomes)
            await self._wait_archived(socket)
            await self._check_results(socket)
            await self._wait_delivered(socket)
            history = await read_from_node(node.data)
            self._check_events(history)
            await self._check_money(socket, history)
            await self._check_stranger(socket, stranger)
        for agent in self._network.agents:
            assert await agent.stop() == 0, agent.log()[-2_000:]
        assert await node.stop() == 0
        await self._check_evidence(history)

    # ------------------------------------------------------------------------------------ jobs

    async def _check_ends(self, socket: NodeSocket, outcomes: dict[str, JobOutcome]) -> None:
        """Each was told once, with its result or with its reason."""
        assert outcomes.keys() == self._jobs.keys()
        for task_id, job in self._jobs.items():
            shown = (await socket.job(task_id))["job"]
            assert shown["state"] == job.state, shown
            assert shown["reason"] or job.state is JobState.COMPLETED, shown
            assert (outcomes[task_id].error is None) == (job.state is JobState.COMPLETED), outcomes[task_id]

    def _check_events(self, history: EventHistory) -> None:
        """By the journal each was admitted once, and ended once; the liar's answers are nobody's results."""
        assert history.jobs.keys() == self._jobs.keys()
        liars = {id_ for id_, name in history.names.items() if name == LIAR}
        for task_id, job in self._jobs.items():
            trace = history.jobs[task_id]
            assert len(trace.admitted) == 1
            completed = job.state is JobState.COMPLETED
            assert (len(trace.accepted), len(trace.ended)) == (completed, not completed), trace
            assert all(proof.provider not in liars for proof in trace.accepted)
        reasons = Counter(
            lease.closed.reason for trace in history.jobs.values() for lease in trace.leases if lease.closed is not None
        )
        assert reasons["PROOF_INVALID"], f"no lie was told: {reasons}"
        assert self._network.reorgs

    # ------------------------------------------------------------------------------------ results and bytes

    async def _wait_archived(self, socket: NodeSocket) -> None:
        """All outputs are at the archive, and of the large ones nothing is left here."""
        data = self._network.node.data
        large = {result_digest(job.output).hex() for job in self._jobs.values() if job.is_large}

        async def is_done() -> bool:
            status = await socket.call("archive.getStatus")
            is_archived = status["archived"] and not status["unpacked"] + status["pending"]
            here = {file.name for file in (data / "warm").rglob("*")} & large
            here |= {file.name for file in (data / "blobs").rglob("*") if file.is_file()}
            return bool(is_archived and status["pruned"] == status["archived"] and not here)

        await self._network.wait_until(is_done)

    async def _check_results(self, socket: NodeSocket) -> None:
        """Every output verifies; a large one is fetched from the archive, through the node and without it."""
        key = (await socket.call("chain.getHead"))["block"]["proposer"]
        for task_id, job in self._jobs.items():
            if job.state is not JobState.COMPLETED:
                continue
            assert await self._client.result(task_id, verify=[key]) == job.output
            if job.is_large:
                parts = (await socket.call("blob.getParts", task_id=task_id))["parts"]
                assert parts
                assert all(part["blob"]["assurance"] == "verified" and part["blob"]["locator"] for part in parts)
                self._large.append(task_id)
        fetched = self._network.place.folder / "fetched"
        for task_id in self._large[: counts(1, 20)]:
            done = await self._network.run_cli("blob", "fetch", task_id, "--output", fetched)
            assert done.code == 0, done.err
            assert fetched.read_bytes() == self._jobs[task_id].output
            fetched.unlink()

    async def _check_stranger(self, socket: NodeSocket, token: str) -> None:
        """Of a job of every sort another tenant sees nothing but that it is there."""
        sorts = {(job.payload["kind"], job.state, job.is_large): id_ for id_, job in self._jobs.items()}
        jobs = []
        for task_id in sorts.values():
            job, reason = self._jobs[task_id], (await socket.job(task_id))["job"]["reason"]
            digest = input_digest(job.input).hex() if job.input is not None else None
            jobs.append(PrivateJob(task_id, "alice", WORD, digest, reason if reason != job.state else ""))
        heights = {
            part["blob"]["height"] for part in (await socket.call("blob.getParts", task_id=self._large[0]))["parts"]
        }
        await check_nothing_private_seen(self._network.url, self._network.grpc, token, jobs, heights)

    # ------------------------------------------------------------------------------------ money

    async def _check_money(self, socket: NodeSocket, history: EventHistory) -> None:
        """All accounts together are 0; the payer's statement says what the events and the balance say."""
        accounts = await sums_of_accounts(socket)
        assert sum(sum(sums) for sums in accounts.values()) == 0, accounts
        charged = sum(proof.charged for trace in history.jobs.values() for proof in trace.accepted)
        said = await self._network.run_cli("account", "statement", "alice", "--csv")
        assert said.code == 0, said.err
        rows = list(csv.DictReader(said.out.splitlines()))
        paid = {row["reference"]: -int(row["amount"]) for row in rows if row["entry"] == "job"}
        completed = {id_ for id_, job in self._jobs.items() if job.state is JobState.COMPLETED}
        assert (set(paid), sum(paid.values())) == (completed, charged)
        alice = await socket.account("alice")
        balance = alice["available"] + alice["held"] + alice["pending"]
        assert balance == sum(int(row["amount"]) for row in rows)
        assert alice["held"] == 0

    # ------------------------------------------------------------------------------------ evidence

    async def _wait_delivered(self, socket: NodeSocket) -> None:
        """Also what agents that were killed have left."""

        async def is_done() -> bool:
            spools = [await asyncio.to_thread(last_spooled, agent.data) for agent in self._network.agents]
            found = (await socket.call("evidence.listSessions", limit=1_000))["sessions"]
            watermarks = {f"{each['channel']}/{each['session']}": each["acked"] for each in found}
            return all(watermarks.get(name, 0) >= last for spool in spools for name, last in spool.items())

        await self._network.wait_until(is_done)

    async def _check_evidence(self, history: EventHistory) -> None:
        """EVD-005: every accepted lease has its records in their order, and nothing behind its one fence."""
        network = self._network
        where = Place(network.node.data, network.place.server) if network.store == "sqlite" else network.place
        lines = await stored_evidence(JOURNALS[network.store](where)())
        told: dict[str, list[str]] = defaultdict(list)
        for _, raw in sorted(lines.items()):
            for line in raw.splitlines():
                if (record := read_lease_record(line)) is not None:
                    told[record[1].hex()].append(record[0])
        leases = [lease for trace in history.jobs.values() for lease in trace.leases]
        assert told.keys() <= {lease.id for lease in leases}
        faulty = {lease.id: told[lease.id] for lease in leases if not _is_complete(lease, told.get(lease.id, []))}
        assert not faulty, json.dumps(faulty, indent=1)


def _is_complete(lease: LeaseTrace, types: list[str]) -> bool:
    """A lease that was never accepted, or lost, can have ended only by the node's clock, and without a result."""
    is_reported = lease.submitted_ms is not None or (lease.closed is not None and lease.closed.reason in REPORTED)
    if not types:
        return not is_reported
    phases = [PHASES[each] for each in types]
    has_outcome = sum(each in OUTCOMES for each in types)
    is_once = types.count(ACCEPTED) == types.count(BLOCK_FENCE) == 1 >= has_outcome
    return is_once and phases == sorted(phases) and has_outcome >= is_reported
