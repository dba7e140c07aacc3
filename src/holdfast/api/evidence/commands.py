"""The commands of the records that are stored together (EVD-005): ACKs, failures, completions and their verdicts.

Small outputs that came with their proofs are put into the warm tier under one sync, before anything is submitted
(RCV-001). The signature of an `attested` proof was verified with its record, which is all that its method asks for: its
verdict is given in the same batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from holdfast.api.completion import build_completion, check_completion, other_submission
from holdfast.api.evidence.requests import Completion
from holdfast.api.evidence.validation import RecordRequest, RecordSender
from holdfast.api.evidence.work_logs import LogSignals
from holdfast.api.limits.evidence_budget import EvidenceBudget
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.base.event import Command
from holdfast.core.base.values import Digest, LeaseId, VerifySignature
from holdfast.core.job.spec import read_work_payload
from holdfast.core.lease.input_claims import is_claim
from holdfast.core.lease.messages import AckLease, FailLease
from holdfast.core.proof.envelope import ProofBody, read_body
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.engine import queries
from holdfast.engine.loop import Engine
from holdfast.engine.output_tier import attach_bytes
from holdfast.engine.queries.jobs import GetLeaseProofs, GetLiveJob, GetLiveLease, LeaseProof
from holdfast.engine.queries.retention import IsWarmDeletePending
from holdfast.ports import Blobs
from holdfast.ports.verifier import ATTESTED, ATTESTED_REASON
from holdfast.workloads.input_check import is_input_valid

COMMIT_INLINE_BYTES: Final = 64 << 10
"""Up to this size the commitments of a group take less time than a hand-over to a thread."""
T = TypeVar("T")


class IngestContext(Protocol):
    """What ingestion needs of the node."""

    @property
    def engine(self) -> Engine: ...
    @property
    def blobs(self) -> Blobs: ...
    @property
    def verify(self) -> VerifySignature: ...
    @property
    def log_signals(self) -> LogSignals: ...
    @property
    def evidence_budget(self) -> EvidenceBudget | None: ...
    async def in_pool(self, work: Callable[..., T], *args: object) -> T: ...


class CommandPlan(msgspec.Struct):
    """What is submitted with the records, in order, and which requests are not."""

    commands: list[Command] = []
    verdicts: list[RecordVerdict] = []
    refused: list[tuple[RecordRequest, Refused]] = []
    put: frozenset[Digest] = frozenset()
    """Outputs that the commands rely on and that came with them."""

    def check_not_being_deleted(self, engine: Engine) -> None:
        """TIER-001: an older copy of these bytes may be deleted any moment; the sender sends them again after it."""
        if any(engine.query_undurable(IsWarmDeletePending(digest)) for digest in self.put):
            raise Unavailable("TIER-001", "the node is deleting an older copy of an output", "send it again")


class _InlineOutput(msgspec.Struct, frozen=True):
    """An output that came with the proof of a live lease of its sender."""

    proof: LeaseProof
    body: ProofBody
    output: bytes


async def plan_commands(node: IngestContext, sender: RecordSender, requests: Sequence[RecordRequest]) -> CommandPlan:
    """The commands of these requests. Outputs that came with them are durable when this returns."""
    inline = _inline_outputs(node, sender, requests)
    plan = CommandPlan(put=frozenset(each.body.output_digest for each in inline))
    if inline:
        plan.check_not_being_deleted(node.engine)
        await node.blobs.put_many({each.body.output_digest: each.output for each in inline})
    completed = _completed_digests(requests)
    for each in requests:
        if isinstance(each.request, AckLease) and each.request.id in completed:
            continue  # LEA-003: completing counts as ACK
        command = await _command_of(node, sender, each, plan.put)
        if isinstance(command, Refused):
            plan.refused.append((each, command))
        else:
            plan.commands.append(command)
    plan.commands += _contradictions(sender, completed, plan)
    plan.verdicts = await _verdicts(node, sender, inline)
    return plan


def _completed_digests(requests: Sequence[RecordRequest]) -> dict[LeaseId, set[Digest]]:
    """What these requests say that each lease has put out."""
    found: dict[LeaseId, set[Digest]] = {}
    for each in requests:
        if isinstance(each.request, Completion) and isinstance(body := read_body(each.request.proof.body), ProofBody):
            found.setdefault(body.lease_id, set()).add(body.output_digest)
    return found


def _contradictions(
    sender: RecordSender, completed: dict[LeaseId, set[Digest]], plan: CommandPlan
) -> list[SubmitCompletion]:
    """RCV-002: of two digests that come together, one without its bytes counts against the other, which is first."""
    proofs = [each.request.proof for each, _ in plan.refused if isinstance(each.request, Completion)]
    return [
        SubmitCompletion(body.lease_id, sender.provider_id, proof, is_output_held=False)
        for proof in proofs
        if isinstance(body := check_completion(proof), ProofBody) and len(completed[body.lease_id]) > 1
    ]


def _inline_outputs(
    node: IngestContext, sender: RecordSender, requests: Sequence[RecordRequest]
) -> list[_InlineOutput]:
    """RCV-001: only the holder of a live lease writes to the node's disk; the output of another one is only stored as
    evidence, and the submission is decided without it."""
    found: list[tuple[ProofBody, bytes]] = []
    for each in requests:
        if isinstance(each.request, Completion) and each.request.output is not None:
            body = read_body(each.request.proof.body)
            assert isinstance(body, ProofBody), "validated"
            found.append((body, each.request.output))
    if not found:
        return []
    proofs = node.engine.query_undurable(GetLeaseProofs(tuple(body.lease_id for body, _ in found)))
    held = {lease_id: proof for lease_id, proof in proofs.items() if proof.provider_id == sender.provider_id}
    return [_InlineOutput(held[body.lease_id], body, output) for body, output in found if body.lease_id in held]


async def _command_of(
    node: IngestContext, sender: RecordSender, each: RecordRequest, put: frozenset[Digest]
) -> Command | Refused:
    if isinstance(each.request, FailLease) and is_claim(each.request.reason):
        return await _checked_claim(node, each.request)
    if not isinstance(each.request, Completion):
        return each.request
    proof = each.request.proof
    if each.request.output is None:
        return await build_completion(node.blobs, node.engine, sender.provider_id, proof)
    body = check_completion(proof)
    if isinstance(body, Refused):
        return body
    is_held = body.output_digest in put
    other = None if is_held else await other_submission(node.engine, sender.provider_id, body)
    return SubmitCompletion(body.lease_id, sender.provider_id, proof, is_output_held=is_held, record=other)


async def _checked_claim(node: IngestContext, claim: FailLease) -> FailLease:
    """JOB-012: what the node itself says of an input that a provider calls invalid."""
    lease = node.engine.query_undurable(GetLiveLease(claim.id))
    job = node.engine.query_undurable(GetLiveJob(lease.job_id)) if lease is not None else None
    if lease is None or job is None or lease.provider_id != claim.provider_id:
        return claim  # it is refused
    payload = read_work_payload(await queries.spec(node.engine, job))
    return msgspec.structs.replace(claim, is_input_valid=await node.in_pool(is_input_valid, payload))


async def _verdicts(node: IngestContext, sender: RecordSender, inline: Sequence[_InlineOutput]) -> list[RecordVerdict]:
    """PRF-002: the verdicts on `attested` proofs; the others wait for their verifier. A rotated key is for it, too."""
    attested = [each for each in inline if (each.proof.method, each.proof.public_key) == (ATTESTED, sender.public)]
    inline_max = node.engine.policy.result.max_inline_bytes
    committed = sum(len(each.output) for each in attested if len(each.output) > inline_max)
    if committed > COMMIT_INLINE_BYTES:
        return await node.in_pool(_make_verdicts, attested, inline_max)
    return _make_verdicts(attested, inline_max)


def _make_verdicts(attested: Sequence[_InlineOutput], inline_max: int) -> list[RecordVerdict]:
    return [
        attach_bytes(
            RecordVerdict(each.body.lease_id, True, ATTESTED_REASON, digest=each.body.output_digest),
            each.proof.caller,
            each.output,
            inline_max,
        )
        for each in attested
    ]
