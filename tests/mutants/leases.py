"""Seeded faults in what becomes of jobs and leases: quotas, times to live, dead letters, tombstones, other policies."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

ADOPT, QUOTA = "core/adopt.py", "core/quota.py"
LEASE, LENT = "core/lease/decide.py", "core/lease/apply.py"
LINE, BACK, BURY = (f"core/queue/{name}.py" for name in ("apply", "requeue", "bury"))
TIMERS, RETRIES = "tests/core/test_assignment_and_lease.py", "tests/core/test_retry_ttl.py"
ADOPTED, QUOTAS, DEAD = (f"tests/core/test_{name}.py" for name in ("adopt", "quota", "dead_letters"))

LEASES: Final = [
    Mutant(
        "units that were reserved are never free again",
        QUOTA,
        "    _add(known, _RESERVED[kind], -units)\n",
        "",
        f"{QUOTAS} -k committed",
    ),
    Mutant(
        "a rollback into an earlier epoch begins it anew",
        QUOTA,
        "known.epoch < epoch:\n        known = ",
        "known.epoch != epoch:\n        known = ",
        f"{QUOTAS} -k earlier_epoch",
    ),
    Mutant(
        "a lowered cap leaves one lease too many",
        ADOPT,
        "(excess > 0 or is_in_units)",
        "(excess > 1 or is_in_units)",
        f"{TIMERS} -k lowered_cap",
    ),
    Mutant(
        "a lowered cap takes what was handed in",
        ADOPT,
        "lease.submitted is None and ",
        "",
        f"{TIMERS} -k handed_in",
    ),
    Mutant(
        "a snapshot forgets which policy counts",
        "core/state.py",
        "adopted_policy(state.adopted) or policy",
        "policy",
        f"{ADOPTED} -k needs_no_settings",
    ),
    Mutant(
        "another policy leaves the order as it was",
        ADOPT,
        "        _rank_anew(state, policy.priority)\n",
        "        pass\n",
        f"{ADOPTED} -k ranks_all",
    ),
    Mutant(
        "a decline denies nothing",
        LENT,
        "    denials[key] = max(denials.get(key, 0), event.denied_until_ms)\n",
        "",
        f"{TIMERS} -k declines",
    ),
    Mutant(
        "what was never acked can be renewed until it is reaped",
        LEASE,
        "    if lease.acked_ms is None and now_ms >= lease.ack_by_ms:\n        return Refused(",
        "    if False:\n        return Refused(",
        f"{TIMERS} -k never_acked",
    ),
    Mutant(
        "a job ends one block too early",
        LEASE,
        "job.expires_height < state.open_height",
        "job.expires_height <= state.open_height",
        f"{RETRIES} -k last_block",
    ),
    Mutant(
        "a retry may begin after the job's time",
        LEASE,
        "if why := why_ended(state, quorum.whole(state, job), now_ms + wait_ms):",
        "if why := why_ended(state, quorum.whole(state, job), now_ms):",
        f"{RETRIES} -k would_start",
    ),
    Mutant(
        "a reorg refunds the second life for the first",
        LINE,
        "    if not later:\n",
        "    if True:\n",
        f"{DEAD} -k each_by_itself",
    ),
    Mutant(
        "a job is put back for nothing",
        BACK,
        "why_not_room(state, job.caller, more) or why_not_paid(state, job.caller, job.max_fee)",
        "why_not_room(state, job.caller, more)",
        f"{DEAD} -k money_again",
    ),
    Mutant(
        "an old record puts a job back twice",
        BACK,
        'is not None:\n        return Refused("RTY-001", f"job {job.id.hex()} was put back',
        'is not None and False:\n        return Refused("RTY-001", f"job {job.id.hex()} was put back',
        f"{DEAD} -k old_record",
    ),
    Mutant(
        "what a reorg could still move is buried",
        BURY,
        " if grave.id not in state.queue.jobs]",
        "]",
        f"{DEAD} -k could_still_move",
    ),
    Mutant(
        "a tombstone goes before its time",
        "duties/sexton.py",
        "job.ended_ms <= before_ms and",
        "job.ended_ms <= before_ms + 1 and",
        "tests/duties/test_sexton.py -k millisecond",
    ),
]
