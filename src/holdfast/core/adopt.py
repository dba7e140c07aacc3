"""Which policy counts (PRI-003, LEA-007): the owner journals it when it differs from the last one that was adopted.

Without that a fold would depend on the settings of whoever folds. A journal from before has no such event; it folds
with the policy it is given, as ever.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from holdfast.core import priority
from holdfast.core.chain.blocks import Chain, begun
from holdfast.core.event import Decided, Event
from holdfast.core.job.record import LIVE, Job, JobState
from holdfast.core.lease.acts import cancelled
from holdfast.core.lease.record import Lease, Leasing
from holdfast.core.match.chance import epoch_id
from holdfast.core.policy import Policy, PriorityPolicy, QuotaPolicy
from holdfast.core.provider.apply import looked_after
from holdfast.core.queue.line import made
from holdfast.core.quota import units_max, units_used
from holdfast.core.refusal import Corrupt, Refused
from holdfast.core.values import ChainId, Kind, ProviderId

QUOTA_LOWERED: Final = "QUOTA_LOWERED"
_HERE: Final = 0
"""The one key of `adopted`."""
_pack = msgspec.msgpack.Encoder().encode


class AdoptPolicy(msgspec.Struct, frozen=True, gc=False):
    """Let this policy count from here on."""

    policy: Policy


class PolicyAdopted(Event, frozen=True, tag=4):
    """This policy counts from here on. Jobs that wait are ranked by it at once (PRI-003)."""

    policy: bytes
    """By names: a later version reads what it knows and takes its defaults for the rest (CAN-005)."""


class Governed(Leasing, Protocol):
    """What this station needs of the state."""

    adopted: dict[int, bytes]
    chain: Chain


def read_policy(packed: bytes) -> Policy:
    try:
        return msgspec.msgpack.decode(packed, type=Policy)
    except msgspec.DecodeError as fault:
        raise Corrupt("PRI-003", f"the policy that was adopted cannot be read: {fault}") from fault


def adopted_policy(adopted: dict[int, bytes]) -> Policy | None:
    """What the journal says counts; None where it says nothing."""
    return read_policy(adopted[_HERE]) if adopted else None


def adopt(state: Governed, command: AdoptPolicy, now_ms: int) -> Decided | Refused:
    """LEA-007: where it lowers a quota, leases beyond it are cancelled with it, the newest first, without blame."""
    policy = command.policy
    if adopted_policy(state.adopted) == policy:
        return Decided((), since=state.last_event)
    if not state.chain.is_untouched and policy.chain_id != state.policy.chain_id:
        says = f"this chain was begun with chain_id {state.policy.chain_id}, not {policy.chain_id}"
        return Refused("CHN-006", says, "set chain_id back, or begin anew in an empty folder", "BadConfig")
    closed = [
        cancelled(lease, QUOTA_LOWERED, now_ms, now_ms)
        for provider_id in state.leases.by_provider
        for lease in beyond(state, provider_id, policy.quota)
    ]
    return Decided((PolicyAdopted(_pack(policy)), *closed))


def beyond(state: Leasing, provider_id: ProviderId, policy: QuotaPolicy) -> list[Lease]:
    """The leases that a provider has too many, the newest first. What was handed in waits for its verdict (RCV-001)."""
    held = state.leases.of(provider_id)
    excess = len(held) - policy.leases_per_provider_max
    epoch = state.quotas[provider_id].epoch if provider_id in state.quotas else 0
    over = {kind: units_used(state.quotas, provider_id, kind, epoch) - units_max(kind, policy) for kind in Kind}
    gone: list[Lease] = []
    for lease in sorted(held, key=lambda each: each.event, reverse=True):
        kind = state.queue.jobs[lease.job_id].kind
        is_in_units = over[kind] > 0 and lease.units > 0 and lease.epoch == epoch
        if lease.submitted is None and (excess > 0 or is_in_units):
            gone.append(lease)
            excess -= 1
            over[kind] -= lease.units if lease.epoch == epoch else 0
    return gone


def apply_adopted(state: Governed, event: PolicyAdopted) -> None:
    """PRI-003: the fold goes on with this policy, whatever it was begun with."""
    before, policy = adopted_policy(state.adopted), read_policy(event.policy)
    state.adopted[_HERE], state.policy = event.policy, policy
    if state.chain.is_untouched:
        state.chain = begun(ChainId(policy.chain_id))
    looked_after(state)  # who is due when depends on policy
    if before is None or before.priority != policy.priority:  # what counted before the first one, nobody knows
        _rank_anew(state, policy.priority)
    if before is not None and before.chain.epoch_blocks != policy.chain.epoch_blocks:
        _count_epochs_anew(state, before.chain.epoch_blocks, policy.chain.epoch_blocks)


def _rank_anew(state: Governed, policy: PriorityPolicy) -> None:
    """All at once: between two orders there is no third."""
    jobs = state.queue.jobs
    for job in jobs.values():
        if job.state in LIVE and (rank := _rank(job, policy)) != job.priority:
            job.priority = rank
            state.touched["job"][job.event] = job
    queue = state.queue
    version = queue.line.version
    queue.line = made(job for job in jobs.values() if job.state is JobState.QUEUED)
    queue.line.version = version + 1


def _rank(job: Job, policy: PriorityPolicy) -> int:
    return priority.key(job.max_fee, job.size_bytes, job.tier, job.enqueue_ms, policy)


def _count_epochs_anew(state: Governed, before_blocks: int, blocks: int) -> None:
    """QUO-001: other epochs, other numbers. What was used in the one that runs counts in the one that runs now."""
    height = state.chain.head.height
    was, now = epoch_id(height, before_blocks), epoch_id(height, blocks)
    for provider_id, quota in list(state.quotas.items()):
        is_current = quota.epoch >= was
        for lease in state.leases.of(provider_id):
            lease.units, lease.epoch = (lease.units, now) if is_current and lease.epoch == quota.epoch else (0, 0)
            state.touched["lease"][lease.event] = lease
        if is_current:
            quota.epoch = now
        else:
            del state.quotas[provider_id]
        state.touched["provider_quota"][provider_id] = quota if is_current else None
