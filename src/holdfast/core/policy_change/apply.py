"""What the adoption of a policy does: priorities are recomputed, epochs renumbered (PRI-003, QUO-001)."""

from __future__ import annotations

from holdfast.core.chain.model import genesis_chain
from holdfast.core.job.model import LIVE_STATES, JobState, ready_ms
from holdfast.core.match.seed_shuffle import epoch_id
from holdfast.core.policy import PriorityPolicy
from holdfast.core.policy_change.messages import PolicyAdopted
from holdfast.core.policy_change.model import EVENT_KEY, POLICY_KEY, PolicyState, adopted_policy, read_policy
from holdfast.core.provider.apply import rebuild_provider_timers
from holdfast.core.queue import priority
from holdfast.core.queue.ready_queue import rebuild_ready_queue


def apply_adopted(state: PolicyState, event: PolicyAdopted) -> None:
    """PRI-003: the fold continues with this policy, whatever it started with."""
    before, policy = adopted_policy(state.policy_bytes), read_policy(event.policy)
    state.policy_bytes, state.policy = {POLICY_KEY: event.policy}, policy
    if event.at_ms:  # else it is of a version that had no history of policies
        state.policy_bytes[EVENT_KEY] = state.last_event.to_bytes(8, "big")
    if state.chain.is_at_genesis:
        state.chain = genesis_chain(policy)
    rebuild_provider_timers(state)  # due times depend on the policy
    if before is None or before.priority != policy.priority:  # the policy before the first adoption is not known
        recompute_priorities(state, policy.priority)
    if before is not None and before.chain.epoch_blocks != policy.chain.epoch_blocks:
        _renumber_epochs(state, before.chain.epoch_blocks, policy.chain.epoch_blocks)


def recompute_priorities(state: PolicyState, policy: PriorityPolicy) -> None:
    """All waiting jobs at once, so that there is never a mixed order."""
    jobs = state.queue.jobs
    for job in jobs.values():
        if job.state not in LIVE_STATES:
            continue
        rank = priority.sort_priority(job.max_fee, job.size_bytes, job.tier, ready_ms(job), policy)
        if rank != job.priority:
            job.priority = rank
            jobs.rewrite(job)
            state.touched["job"][job.event] = job
    version = state.queue.ready_queue.version
    state.queue.ready_queue = rebuild_ready_queue(job for job in jobs.values() if job.state is JobState.QUEUED)
    state.queue.ready_queue.version = version + 1


def _renumber_epochs(state: PolicyState, before_blocks: int, blocks: int) -> None:
    """QUO-001: epochs of another length have other numbers. What the current epoch used counts in the new one."""
    height = state.chain.head.height
    before, now = epoch_id(height, before_blocks), epoch_id(height, blocks)
    for provider_id, quota in list(state.quotas.items()):
        is_current = quota.epoch >= before
        for lease in state.leases.of(provider_id):
            lease.units, lease.epoch = (lease.units, now) if is_current and lease.epoch == quota.epoch else (0, 0)
            state.touched["lease"][lease.event] = lease
        if is_current:
            quota.epoch = now
        else:
            del state.quotas[provider_id]
        state.touched["provider_quota"][provider_id] = quota if is_current else None
