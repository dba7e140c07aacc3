"""One task, one nullifier (RES-001): what a proof is known by, and why it may not count for this task."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core import claim
from holdfast.core.canon import live_versions
from holdfast.core.event import Attachment, enclose
from holdfast.core.job.record import Job
from holdfast.core.lease.record import Leasing
from holdfast.core.proof.acts import Judge, ProofAccepted, TaskLinked, link_key, nullifier_key
from holdfast.core.proof.envelope import Body, Envelope, ProofType, packed_nullifier, window_of
from holdfast.core.refusal import Refused
from holdfast.core.values import Digest, Kind

TYPES: Final = {Kind.AI: ProofType.AI, Kind.QUANTUM: ProofType.QUANTUM}
HOT_INLINE_BYTES_MAX: Final = 0
"""Hot bytes are rows beside their batch however few they are: a row can be let go (RET-002), a batch cannot."""


def newest_nullifier(state: Leasing, envelope: Envelope, job: Job) -> Digest:
    """PRF-001: under the tag that counts now."""
    return _nullifier(state, envelope, job, _live(state)[-1])


def why_not_linked(state: Leasing, accepted: ProofAccepted, envelope: Envelope) -> Refused | None:
    """RES-001: one task, one nullifier, for ever."""
    linked = TaskLinked(accepted.task_id, accepted.link)
    known = claim.why_not_first(state.claims, link_key(accepted.task_id), linked)
    if known is not None:
        says = f"task {accepted.task_id.hex()} is linked to a proof already"
        name = "ProofConflict" if isinstance(known, Refused) else "Refused"
        return Refused("RES-001", says, "one task, one nullifier: the first one counts", name)
    for each in (accepted.nullifier, *_older_nullifiers(state, accepted, envelope)):
        if state.claims.knows(nullifier_key(each)):
            return Refused("RES-001", f"nullifier {each.hex()} is known", name="NullifierReuse")
    return None


def conflict(body: Body) -> Refused:
    says = f"task {body.task_id.hex()} is resolved by another proof"
    return Refused("RES-001", says, "one task, one nullifier: the first one counts", "ProofConflict")


def with_output(accepted: ProofAccepted, command: Judge) -> tuple[ProofAccepted, tuple[Attachment, ...]]:
    """What whoever judged has made of the bytes: kept hot (TIER-001), or pinned (DA-001)."""
    attachments: tuple[Attachment, ...] = ()
    if command.output is not None:
        output, attachments = enclose(command.output, HOT_INLINE_BYTES_MAX)
        accepted = msgspec.structs.replace(accepted, output=output)
    if command.da_commitment is not None:
        accepted = msgspec.structs.replace(accepted, da_commitment=command.da_commitment)
    return accepted, attachments


def _older_nullifiers(state: Leasing, accepted: ProofAccepted, envelope: Envelope) -> list[Digest]:
    """CAN-003: what the same proof is known by under tags that are still recognised; mostly there are none."""
    job = state.queue.jobs[accepted.task_id]
    return [_nullifier(state, envelope, job, version) for version in _live(state)[:-1]]


def _live(state: Leasing) -> tuple[int, ...]:
    chain = state.policy.chain
    return live_versions(state.open_height, chain.tags_v2_height, chain.tags_grace_blocks)


def _nullifier(state: Leasing, envelope: Envelope, job: Job, version: int) -> Digest:
    window = window_of(job.height, state.policy.chain.nullifier_window_blocks)
    return packed_nullifier(envelope.type, window, envelope.body, version)
