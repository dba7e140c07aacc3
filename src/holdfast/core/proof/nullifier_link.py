"""One task, one nullifier (RES-001): the nullifier of a proof, and why a proof may not count for a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.core.base.canonical import live_versions
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Attachment, NeedsClaims, PayloadRef, make_payload
from holdfast.core.base.values import Digest, Kind, TaskId
from holdfast.core.index import unique_ids
from holdfast.core.job.model import Job
from holdfast.core.lease.model import HasLeases
from holdfast.core.proof.envelope import Envelope, ProofBody, ProofType, link_of, packed_nullifier, window_of
from holdfast.core.proof.messages import RecordVerdict, TaskLinked, link_key, nullifier_key

PROOF_TYPES: Final = {kind: ProofType[kind.name] for kind in Kind}
HOT_INLINE_BYTES_MAX: Final = 0
"""Hot bytes are always rows beside their batch, even small ones: a row can be deleted (RET-002), a batch cannot."""


def live_nullifiers(state: HasLeases, envelope: Envelope, job: Job) -> list[Digest]:
    """PRF-001, CAN-003: the nullifiers of a proof under every live tag; the first, under the newest tag, is its own."""
    chain = state.policy.chain
    versions = live_versions(state.open_height, chain.tags_v2_height, chain.tags_grace_blocks)
    window = window_of(job.height, chain.nullifier_window_blocks)
    return [packed_nullifier(envelope.type, window, envelope.body, version) for version in versions[::-1]]


def why_not_linked(
    state: HasLeases, task_id: TaskId, envelope: Envelope, nullifiers: Sequence[Digest]
) -> Refused | NeedsClaims | None:
    """RES-001: one task, one nullifier, for ever. A job that is not done has no link that only the tables know."""
    claims = state.claims
    if claims.is_known(link_key(task_id)):
        linked = TaskLinked(task_id, link_of(envelope))
        is_other = isinstance(unique_ids.check_unique(claims, link_key(task_id), linked), Refused)
        message = f"task {task_id.hex()} is linked to a proof already"
        name = "ProofConflict" if is_other else "Refused"
        return Refused("RES-001", message, "one task, one nullifier: the first one counts", name)
    for nullifier in nullifiers:
        key = nullifier_key(nullifier)
        if claims.is_known(key):
            return Refused("RES-001", f"nullifier {nullifier.hex()} is known", name="NullifierReuse")
        if claims.may_be_stored(key) and (lacking := claims.lacking(tuple(map(nullifier_key, nullifiers)))):
            return NeedsClaims(lacking)
    return None


def refuse_conflict(body: ProofBody) -> Refused:
    message = f"task {body.task_id.hex()} is resolved by another proof"
    return Refused("RES-001", message, "one task, one nullifier: the first one counts", "ProofConflict")


def hot_output(command: RecordVerdict) -> tuple[PayloadRef | None, tuple[Attachment, ...]]:
    """The hot bytes as the event names them, and their row, where the verifier supplied them (TIER-001)."""
    return (None, ()) if command.output is None else make_payload(command.output, HOT_INLINE_BYTES_MAX)
