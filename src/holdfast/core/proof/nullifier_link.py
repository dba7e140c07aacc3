"""One task, one nullifier (RES-001): the nullifier of a proof, and why a proof may not count for a task."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.base.canonical import live_versions
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Attachment, make_payload
from holdfast.core.base.values import Digest, Kind
from holdfast.core.index import unique_ids
from holdfast.core.job.model import Job
from holdfast.core.lease.model import HasLeases
from holdfast.core.proof.envelope import Envelope, ProofBody, ProofType, packed_nullifier, window_of
from holdfast.core.proof.messages import ProofAccepted, RecordVerdict, TaskLinked, link_key, nullifier_key

PROOF_TYPES: Final = {Kind.AI: ProofType.AI, Kind.QUANTUM: ProofType.QUANTUM}
HOT_INLINE_BYTES_MAX: Final = 0
"""Hot bytes are always rows beside their batch, even small ones: a row can be deleted (RET-002), a batch cannot."""


def newest_nullifier(state: HasLeases, envelope: Envelope, job: Job) -> Digest:
    """PRF-001: the nullifier under the newest live tag."""
    return _nullifier(state, envelope, job, _live_tag_versions(state)[-1])


def why_not_linked(state: HasLeases, accepted: ProofAccepted, envelope: Envelope) -> Refused | None:
    """RES-001: one task, one nullifier, for ever."""
    linked = TaskLinked(accepted.task_id, accepted.link)
    known = unique_ids.check_unique(state.claims, link_key(accepted.task_id), linked)
    if known is not None:
        message = f"task {accepted.task_id.hex()} is linked to a proof already"
        name = "ProofConflict" if isinstance(known, Refused) else "Refused"
        return Refused("RES-001", message, "one task, one nullifier: the first one counts", name)
    for nullifier in (accepted.nullifier, *_older_nullifiers(state, accepted, envelope)):
        if state.claims.is_known(nullifier_key(nullifier)):
            return Refused("RES-001", f"nullifier {nullifier.hex()} is known", name="NullifierReuse")
    return None


def refuse_conflict(body: ProofBody) -> Refused:
    message = f"task {body.task_id.hex()} is resolved by another proof"
    return Refused("RES-001", message, "one task, one nullifier: the first one counts", "ProofConflict")


def attach_output(accepted: ProofAccepted, command: RecordVerdict) -> tuple[ProofAccepted, tuple[Attachment, ...]]:
    """The accepted proof with its hot bytes (TIER-001) or its commitment (DA-001), as the verifier supplied them."""
    attachments: tuple[Attachment, ...] = ()
    if command.output is not None:
        output, attachments = make_payload(command.output, HOT_INLINE_BYTES_MAX)
        accepted = msgspec.structs.replace(accepted, output=output)
    if command.da_commitment is not None:
        accepted = msgspec.structs.replace(accepted, da_commitment=command.da_commitment)
    return accepted, attachments


def _older_nullifiers(state: HasLeases, accepted: ProofAccepted, envelope: Envelope) -> list[Digest]:
    """CAN-003: the nullifiers of the same proof under older live tags; mostly there are none."""
    job = state.queue.jobs[accepted.task_id]
    return [_nullifier(state, envelope, job, version) for version in _live_tag_versions(state)[:-1]]


def _live_tag_versions(state: HasLeases) -> tuple[int, ...]:
    chain = state.policy.chain
    return live_versions(state.open_height, chain.tags_v2_height, chain.tags_grace_blocks)


def _nullifier(state: HasLeases, envelope: Envelope, job: Job, version: int) -> Digest:
    window = window_of(job.height, state.policy.chain.nullifier_window_blocks)
    return packed_nullifier(envelope.type, window, envelope.body, version)
