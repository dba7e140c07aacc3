"""Seeded faults in quorum jobs, where several providers must return the same output (LEA-009)."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

REPLICAS, QUEUE_APPLY, VOTES = "core/queue/replicas.py", "core/queue/apply.py", "core/proof/votes.py"
LEASE_QUORUM, LEASE_DECIDE = "core/lease/quorum.py", "core/lease/decide.py"
TESTS: Final = "tests/core/lease/test_quorum.py"

QUORUM: Final = [
    Mutant(
        "one vote too few makes a quorum",
        VOTES,
        "    if len(agreeing) < parent.quorum_n:\n        ended",
        "    if len(agreeing) < parent.quorum_n - 1:\n        ended",
        f"{TESTS} -k nth_equal",
    ),
    Mutant(
        "votes for different outputs are counted together",
        VOTES,
        "(vote for vote in votes if vote.digest == digest)",
        "(vote for vote in votes)",
        f"{TESTS} -k differ",
    ),
    Mutant(
        "half of the replicas is accepted as a quorum",
        "core/job/spec.py",
        "    if 2 * quorum.n <= quorum.m:\n",
        "    if 2 * quorum.n < quorum.m:\n",
        f"{TESTS} -k not_more_than_half",
    ),
    Mutant(
        "each replica is paid the whole fee",
        "core/job/model.py",
        "min(job.max_fee // (job.quorum_n or 1), job.units * price)",
        "min(job.max_fee, job.units * price)",
        f"{TESTS} -k share",
    ),
    Mutant(
        "after a reorg only the first replica is paid again",
        REPLICAS,
        "for each in paid[1:] if each.amount]",
        "for each in paid[1:] if each.amount and job.settled_height is None]",
        f"{TESTS} -k rolls_back_what_all",
    ),
    Mutant(
        "a provider that delivered one replica gets another",
        LEASE_QUORUM,
        "(*live, *(vote.provider_id for vote in quorum.votes))",
        "live",
        f"{TESTS} -k rather_than",
    ),
    Mutant(
        "two replicas that end in one run are handled separately",
        LEASE_DECIDE,
        "queue.jobs[lease.job_id].parent or lease.job_id",
        "lease.job_id",
        f"{TESTS} -k in_one_run",
    ),
    Mutant(
        "a quorum that cannot be reached is given up one vote too late",
        LEASE_QUORUM,
        "still_open < parent.quorum_n",
        "still_open < parent.quorum_n - 1",
        f"{TESTS} -k none_can_win",
    ),
    Mutant(
        "a submission of one replica does not freeze the deadlines of the job",
        LEASE_DECIDE,
        "is_frozen = any(",
        "is_frozen = not job.quorum_m and any(",
        f"{TESTS} -k freezes",
    ),
    Mutant(
        "a raised fee does not move the replicas",
        QUEUE_APPLY,
        "for waiting in (job, *replicas_of(state, job)):",
        "for waiting in (job,):",
        f"{TESTS} -k raised_fee",
    ),
    Mutant(
        "replicas are never evicted from memory",
        QUEUE_APPLY,
        "        evicted = [job.id, *(replica.id for replica in replicas_of(state, job))]\n",
        "        evicted = [job.id]\n",
        f"{TESTS} -k rest_goes_back",
    ),
    Mutant(
        "a requeue resets the attempts of a replica",
        "core/queue/requeue.py",
        "earlier[id_], parent=job.id, index=index)",
        "earlier[id_], parent=job.id, index=index, attempts=0)",
        f"{TESTS} -k attempts_go_on",
    ),
    Mutant(
        "a snapshot loses the votes",
        "core/state.py",
        '    StatePart("quorums", "quorums", dict[TaskId, Quorum]),\n',
        "",
        f"{TESTS} -k nth_equal",
    ),
    Mutant(
        "bytes of a vote are deleted before the others have voted",
        "core/retention/decide.py",
        "        for vote in quorum.votes\n    }\n    return",
        "        for vote in quorum.votes[:0]\n    }\n    return",
        "tests/core/retention/test_retention.py -k voted",
    ),
    Mutant(
        "a replica is purged before its job",
        "workers/job_purger.py",
        "        if job.parent:\n            return False\n",
        "",
        "tests/api/rpc/methods/test_methods_quorum.py -k purged",
    ),
]
