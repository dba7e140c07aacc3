"""Stores the records of one session, whichever service received them (EVD-002, EVD-003, EVD-007).

The watermark in the state decides, not the stream. Whether a stream is cut, repeated or doubled, a record is stored
once; a record that is received again is compared with the stored one.
"""

from __future__ import annotations

import asyncio

import structlog

from holdfast.api.evidence.commands import CommandPlan, IngestContext, plan_commands
from holdfast.api.evidence.metrics import EvidenceMetrics, StreamProgress
from holdfast.api.evidence.reader import SessionReader
from holdfast.api.evidence.requests import NO_OUTPUT
from holdfast.api.evidence.validation import (
    RecordSender,
    ValidatedLines,
    is_same_record,
    prepare,
    reject,
)
from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.values import LeaseId, TaskId
from holdfast.core.evidence.messages import RejectedRecord, StoreEvidence
from holdfast.engine.outcome import Accepted, Outcome
from holdfast.engine.queries.evidence import GetDeadLetterCapacity, GetWatermark
from holdfast.engine.queries.jobs import GetLiveJob, GetLiveLease
from holdfast.engine.queries.providers import HasStake

_log = structlog.get_logger()


class EvidenceIngest:
    """One session, while a stream delivers records of it."""

    def __init__(
        self, node: IngestContext, sender: RecordSender, metrics: EvidenceMetrics, progress: StreamProgress
    ) -> None:
        self._node, self._sender, self._metrics, self._progress = node, sender, metrics, progress
        self._stored = SessionReader(node.engine, sender.channel, sender.session)
        self._pruned = 0
        self.acked = 0
        self._ahead: tuple[int, list[bytes], asyncio.Future[ValidatedLines]] | None = None
        """Lines that are being validated before it is their turn."""

    async def load_watermark(self) -> None:
        """The durable watermark: what a restarted node would load."""
        watermark = await self._node.engine.query_durable(GetWatermark(self._sender.channel, self._sender.session))
        acked, self._pruned = (0, 0) if watermark is None else (watermark.acked, watermark.pruned)
        self._advance(max(self.acked, acked))

    @property
    def _session_name(self) -> str:
        return f"{self._sender.channel}/{self._sender.session}"

    @property
    def is_behind(self) -> bool:
        """Whether the sender has records that the node does not have."""
        return self._progress.emitted > self.acked

    def _advance(self, acked: int) -> None:
        self.acked = self._progress.acked = acked
        self._progress.emitted = max(self._progress.emitted, acked)

    async def ingest(self, first: int, lines: list[bytes]) -> Refused | None:
        """EVD-002: lines above the watermark are stored, lines below it are compared, a gap is refused.

        A refusal leaves the watermark where it was. After an `EvidenceGap` the sender may continue on the same stream.
        """
        if first < 1:
            return Refused("EVD-001", f"a record has the sequence {first}", "a session begins with 1", "InvalidParams")
        if first > self.acked + 1:
            self._metrics.gaps += 1
            message = f"{self._session_name}: {first} does not follow {self.acked}"
            return Refused("EVD-002", message, "send again from the acknowledged sequence", "EvidenceGap")
        self._progress.emitted = max(self._progress.emitted, first + len(lines) - 1)
        await self._wait_within_budget(lines)
        while lines:
            known = min(self.acked + 1 - first, len(lines))
            if known and (refusal := await self._check_duplicates(first, lines[:known])):
                return refusal
            lines, first = lines[known:] if known else lines, first + known
            if lines:
                stored = await self._store(first, lines)
                if isinstance(stored, Refused):
                    return stored
                lines, first = lines[stored:], first + stored
        return None

    async def _wait_within_budget(self, lines: list[bytes]) -> None:
        """SEC-002: a v0.1 channel was invited by its owner's certificate or by mode `open`; agents need a stake."""
        if (budget := self._node.evidence_budget) is not None:
            is_staked = not self._sender.provider_id or self._node.engine.query_undurable(
                HasStake(self._sender.provider_id)
            )
            await budget.wait_turn(self._sender.channel, sum(map(len, lines)), is_staked=is_staked)

    async def _check_duplicates(self, first: int, lines: list[bytes]) -> Refused | None:
        """EVD-003: a repeated record has no effect; another record under a known sequence is a conflict.

        Records that are pruned while they are read look like a hole: then they are compared again.
        """
        while True:
            pruned = self._pruned
            try:
                return await self._compare_stored(first, lines)
            except Corrupt:
                await self.load_watermark()
                if self._pruned == pruned:
                    raise

    async def _compare_stored(self, first: int, lines: list[bytes]) -> Refused | None:
        """Duplicates are rare, so the stored lines are read. Of a pruned record only the sequence is known."""
        begin, last = max(first, self._pruned + 1), first + len(lines) - 1
        if begin <= last:
            async for sequence, stored in self._stored.lines(begin, last):
                if not is_same_record(stored, lines[sequence - first]):
                    self._metrics.conflicts += 1
                    message = f"{self._session_name}: {sequence} is stored with another event_uuid"
                    return Refused(
                        "EVD-003", message, "a sequence is used once: begin a new session", "SequenceConflict"
                    )
        self._metrics.duplicates += len(lines)
        return None

    def validate_ahead(self, first: int, lines: list[bytes]) -> None:
        """Begin to validate these lines while others are being stored: `ingest` of the same list goes on from there."""
        if self._ahead is None:
            self._ahead = first, lines, asyncio.ensure_future(self._validate(first, lines))

    async def _validate(self, first: int, lines: list[bytes]) -> ValidatedLines:
        return await self._node.in_pool(prepare, self._sender, self._node.verify, first, lines)

    async def _validated(self, first: int, lines: list[bytes]) -> ValidatedLines:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == first and ahead[1] is lines:
            return await ahead[2]
        if ahead is not None:  # others are stored now: what was validated is validated again when it is its turn
            ahead[2].cancel()
        return await self._validate(first, lines)

    async def _store(self, first: int, lines: list[bytes]) -> int | Refused:
        """Store some of the lines that follow the watermark and return how many: 0 where another stream was faster."""
        validated = await self._validated(first, lines)
        plan = await self._plan(validated)
        if (fitting := self._count_within_quota(first, validated)) < len(validated.lines):
            return await self._store(first, lines[:fitting])
        return await self._submit(first, validated, plan)

    def _count_within_quota(self, first: int, validated: ValidatedLines) -> int:
        """EVD-007: lines before the first dead letter over the quota are stored; from there on the channel waits.

        Without this, dead letters that arrive together could exceed the quota, since none of them is counted yet.
        """
        room = self._node.engine.query_undurable(GetDeadLetterCapacity(self._sender.channel))
        if len(validated.rejected) <= room:
            return len(validated.lines)
        before = sorted(each.sequence for each in validated.rejected)[max(0, room)] - first
        return before or len(validated.lines)

    async def _submit(self, first: int, validated: ValidatedLines, plan: CommandPlan) -> int | Refused:
        """Records, watermark and the records' commands in one journal batch, durable when this returns."""
        last = first + len(validated.lines) - 1
        store = StoreEvidence(
            provider_id=self._sender.provider_id,
            channel=self._sender.channel,
            session=self._sender.session,
            first=first,
            last=last,
            lines=validated.packed,
            rejected=tuple(map(self._shorten, validated.rejected)),
            ending=validated.end,
            leases=validated.leases,
            digest=validated.digest,
        )
        jobs = self._jobs_of(store.leases)
        plan.check_not_being_deleted(self._node.engine)
        stored, *outcomes = await self._node.engine.submit_atomic([store, *plan.commands, *plan.verdicts])
        if isinstance(stored, Accepted) and not stored.is_repeat:
            self._advance(last)
            self._count(validated, outcomes)
            self._node.log_signals.notify(jobs)
            return len(validated.lines)
        before = self.acked
        await self.load_watermark()
        return stored if isinstance(stored, Refused) and self.acked == before else 0

    def _jobs_of(self, leases: tuple[LeaseId, ...]) -> set[TaskId]:
        """Whose followers are told; asked before the records end a lease."""
        engine = self._node.engine
        live = filter(None, (engine.query_undurable(GetLiveLease(lease_id)) for lease_id in leases))
        jobs = {lease.job_id: engine.query_undurable(GetLiveJob(lease.job_id)) for lease in live}
        return {id_ if job is None else job.parent or id_ for id_, job in jobs.items()}

    def _shorten(self, rejected: RejectedRecord) -> RejectedRecord:
        budget = self._node.evidence_budget
        return rejected if budget is None else budget.shorten(self._sender.channel, rejected)

    async def _plan(self, validated: ValidatedLines) -> CommandPlan:
        """The commands of the records. A completion whose output is missing is stored, as evidence alone (RCV-001)."""
        plan = await plan_commands(self._node, self._sender, validated.requests)
        for each, refusal in plan.refused:
            why = (NO_OUTPUT, refusal.message)
            validated.rejected.append(reject(each.sequence, why, each.line, is_stored=True))
        return plan

    def _count(self, validated: ValidatedLines, outcomes: list[Outcome]) -> None:
        """A refused command is reported to the operator alone: the sender's record is stored in any case."""
        refusals = [str(outcome) for outcome in outcomes if isinstance(outcome, Refused)]
        invalid_requests = sum(each.is_stored for each in validated.rejected)
        self._metrics.count_stored(len(validated.lines))
        self._metrics.invalid_requests += invalid_requests
        self._metrics.malformed += len(validated.rejected) - invalid_requests
        self._metrics.refused_requests += len(refusals)
        if validated.rejected or refusals:
            reasons = [*map(_describe_rejected, validated.rejected), *refusals]
            _log.info("evidence_rejected", channel=self._sender.channel, reasons=reasons[:8])


def _describe_rejected(rejected: RejectedRecord) -> str:
    return f"record {rejected.sequence}: {rejected.name}: {rejected.reason}"
