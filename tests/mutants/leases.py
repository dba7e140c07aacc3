"""Seeded faults in jobs and leases: quotas, times to live, requeueing, purging, and changes of the policy."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

LEASE_DECIDE, POLICY_CHANGE_DECIDE = "core/lease/decide.py", "core/policy_change/decide.py"
QUOTA, REQUEUE = "core/queue/quota.py", "core/queue/requeue.py"
LEASE_TESTS, RETRY_TESTS = "tests/core/lease/test_assignment_and_lease.py", "tests/core/queue/test_retry_ttl.py"
QUOTA_TESTS, REQUEUE_TESTS = "tests/core/queue/test_quota.py", "tests/core/queue/test_requeue_and_purge.py"
POLICY_TESTS = "tests/core/policy_change/test_policy_change.py"

LEASES: Final = [
    Mutant(
        "reserved units are never released",
        QUOTA,
        "    _add(known, _RESERVED[kind], -units)\n",
        "",
        f"{QUOTA_TESTS} -k committed",
    ),
    Mutant(
        "a rollback into an earlier epoch resets its quota",
        QUOTA,
        "known.epoch < epoch:\n        known = ",
        "known.epoch != epoch:\n        known = ",
        f"{QUOTA_TESTS} -k earlier_epoch",
    ),
    Mutant(
        "a lowered cap leaves one lease too many",
        POLICY_CHANGE_DECIDE,
        "(excess > 0 or is_in_units)",
        "(excess > 1 or is_in_units)",
        f"{LEASE_TESTS} -k lowered_cap",
    ),
    Mutant(
        "a lowered cap cancels a lease with a submission",
        POLICY_CHANGE_DECIDE,
        "lease.submitted is None and ",
        "",
        f"{LEASE_TESTS} -k submitted_is_not_cancelled",
    ),
    Mutant(
        "a snapshot loses the adopted policy",
        "engine/snapshots/state_snapshot.py",
        "adopted_policy(state.policy_bytes) or policy",
        "policy",
        f"{POLICY_TESTS} -k needs_no_settings",
    ),
    Mutant(
        "a change of the policy does not recompute priorities",
        "core/policy_change/apply.py",
        "        recompute_priorities(state, policy.priority)\n",
        "        pass\n",
        f"{POLICY_TESTS} -k ranks_all",
    ),
    Mutant(
        "a decline does not deny the class to the provider",
        "core/lease/apply.py",
        "    denials[key] = max(denials.get(key, 0), event.denied_until_ms)\n",
        "",
        f"{LEASE_TESTS} -k declines",
    ),
    Mutant(
        "a lease without an ACK can be renewed after its ACK deadline",
        LEASE_DECIDE,
        "    if lease.acked_ms is None and now_ms >= lease.ack_by_ms:\n        return Refused(",
        "    if False:\n        return Refused(",
        f"{LEASE_TESTS} -k never_acked",
    ),
    Mutant(
        "a job expires one block too early",
        LEASE_DECIDE,
        "job.expires_height < state.open_height",
        "job.expires_height <= state.open_height",
        f"{RETRY_TESTS} -k last_block",
    ),
    Mutant(
        "a retry is scheduled after the job expires",
        LEASE_DECIDE,
        "elif why := why_expired(state, quorum.parent_job(state, job), now_ms + wait_ms):",
        "elif why := why_expired(state, quorum.parent_job(state, job), now_ms):",
        f"{RETRY_TESTS} -k would_start",
    ),
    Mutant(
        "a reorg applies the refund of a failure to the requeued job",
        "core/queue/apply.py",
        "    if not later:\n",
        "    if True:\n",
        f"{REQUEUE_TESTS} -k each_by_itself",
    ),
    Mutant(
        "a job is requeued without the money for its fee",
        REQUEUE,
        "check_capacity(state, job.caller, more) or check_funds(state.ledger, job.caller, job.max_fee)",
        "check_capacity(state, job.caller, more)",
        f"{REQUEUE_TESTS} -k money_again",
    ),
    Mutant(
        "an old record requeues a job twice",
        REQUEUE,
        'is not None:\n        return Refused("RTY-001", f"job {job.id.hex()} was requeued',
        'is not None and False:\n        return Refused("RTY-001", f"job {job.id.hex()} was requeued',
        f"{REQUEUE_TESTS} -k old_record",
    ),
    Mutant(
        "a job whose money a reorg could still move is purged",
        "core/queue/purge.py",
        " if tombstone.id not in state.queue.jobs]",
        "]",
        f"{REQUEUE_TESTS} -k could_still_move",
    ),
    Mutant(
        "a tombstone is purged a millisecond too early",
        "workers/job_purger.py",
        "job.ended_ms <= before_ms and",
        "job.ended_ms <= before_ms + 1 and",
        "tests/workers/test_job_purger.py -k millisecond",
    ),
]
