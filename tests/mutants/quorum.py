"""Seeded faults in jobs that several providers must agree on (LEA-009)."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

NAMES, REPLICAS = "core/job/quorum.py", "core/queue/replicas.py"
LENT, VOTES, LINE = "core/lease/quorum.py", "core/proof/votes.py", "core/queue/apply.py"
TESTS: Final = "tests/core/test_quorum.py"

QUORUM: Final = [
    Mutant(
        "one vote fewer is enough",
        VOTES,
        "    if len(agreeing) < parent.quorum_n:\n        ended",
        "    if len(agreeing) < parent.quorum_n - 1:\n        ended",
        f"{TESTS} -k nth_equal",
    ),
    Mutant(
        "votes are counted whatever they say",
        VOTES,
        "(vote for vote in votes if vote.digest == digest)",
        "(vote for vote in votes)",
        f"{TESTS} -k differ",
    ),
    Mutant(
        "half may agree",
        "core/job/spec.py",
        "    if 2 * asked.n <= asked.m:\n",
        "    if 2 * asked.n < asked.m:\n",
        f"{TESTS} -k not_more_than_half",
    ),
    Mutant(
        "each is paid as if it were alone",
        NAMES,
        "min(max_fee // n, units * price)",
        "min(max_fee, units * price)",
        f"{TESTS} -k share",
    ),
    Mutant(
        "a reorg pays only the first again",
        REPLICAS,
        "        if each.amount:\n            money.settle_for",
        "        if each.amount and job.settled_height is None:\n            money.settle_for",
        f"{TESTS} -k takes_back_what_all",
    ),
    Mutant(
        "who has delivered one gets another",
        LENT,
        "(*live, *(vote.provider_id for vote in quorum.votes))",
        "live",
        f"{TESTS} -k rather_than",
    ),
    Mutant(
        "two that end in one look are each looked at alone",
        "core/lease/decide.py",
        "queue.jobs[lease.job_id].parent or lease.job_id",
        "lease.job_id",
        f"{TESTS} -k one_look",
    ),
    Mutant(
        "a quorum is given up one too late",
        LENT,
        "still_open < parent.quorum_n",
        "still_open < parent.quorum_n - 1",
        f"{TESTS} -k none_can_win",
    ),
    Mutant(
        "what one handed in does not stop the clock of all",
        "core/lease/decide.py",
        "        return any(lease.submitted is not None for lease in quorum.live_leases(state, job))\n    lease =",
        "        return False\n    lease =",
        f"{TESTS} -k freezes",
    ),
    Mutant(
        "a raised fee moves only the job that nobody matches",
        LINE,
        "for each in (job, *replicas_of(state, job)):",
        "for each in (job,):",
        f"{TESTS} -k raised_fee",
    ),
    Mutant(
        "replicas are in nobody's memory for ever",
        LINE,
        "        for replica in replicas_of(state, job):\n            del state.queue.jobs[replica.id]\n",
        "",
        f"{TESTS} -k rest_goes_back",
    ),
    Mutant(
        "the attempts of a replica that is put back begin anew",
        REPLICAS,
        "(was.proof, was.attempts, was.event)",
        "(was.proof, 0, was.event)",
        f"{TESTS} -k attempts_go_on",
    ),
    Mutant(
        "a snapshot forgets the votes",
        "core/state.py",
        '    Part("quorums", dict[TaskId, Quorum]),\n',
        "",
        f"{TESTS} -k nth_equal",
    ),
    Mutant(
        "the bytes of a vote may go before the others have voted",
        "core/retention/decide.py",
        "    waiting |= {vote.digest for quorum in state.quorums.values() for vote in quorum.votes}",
        "    waiting |= set()",
        "tests/core/test_retention.py -k voted",
    ),
    Mutant(
        "a replica is buried before its job",
        "duties/sexton.py",
        "        if job.parent:\n            return False\n",
        "",
        "tests/doors/test_methods_quorum.py -k buried",
    ),
]
