"""Seeded faults in matching: starvation guard, quotas, selection orders, provider index, skipped ticks, audit."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

TICK, SELECTION, MERGE, PROVIDER_INDEX, DECIDE = (
    f"core/match/{name}.py" for name in ("tick", "selection", "merge", "provider_index", "decide")
)
READY_QUEUE, AUDIT = "core/queue/ready_queue.py", "history/audit.py"
WORLD_TESTS, HISTORY_TESTS, GUARD_TESTS = (
    f"tests/core/match/test_match_{name}.py" for name in ("worlds", "histories", "guards")
)
LIVE_JOBS_TESTS = "tests/core/queue/live/test_live_jobs.py"
READY_QUEUE_TESTS, AUDIT_TESTS = "tests/core/queue/test_ready_queue.py", "tests/history/test_audit.py"

MATCHING: Final = [
    Mutant(
        "the starvation guard comes one assignment too early",
        TICK,
        "(counter + len(self.sort_keys)) % every",
        "(counter + len(self.sort_keys) + 1) % every",
        f"{WORLD_TESTS} -k shuffle-0",
    ),
    Mutant(
        "a job that the starvation guard assigned is assigned again",
        TICK,
        "if sort_key in picked:",
        "if False:",
        f"{WORLD_TESTS} -k shuffle-0",
    ),
    Mutant(
        "assignments of a tick do not use up units",
        TICK,
        "candidate.units_left[pool.kind_index] -= pool.units",
        "pass",
        f"{WORLD_TESTS} -k shuffle-0",
    ),
    Mutant(
        "one provider gets two replicas of a job",
        TICK,
        "if self.replica_holders is not None and entry.provider.id in self.replica_holders:",
        "if False:",
        f"{WORLD_TESTS} -k shuffle-0",
    ),
    Mutant(
        "SPREAD ignores the load of assignments in the same tick",
        SELECTION,
        "self._next = min(self._next, load + 1)",
        "pass",
        f"{WORLD_TESTS} -k spread-0",
    ),
    Mutant(
        "ties are broken by another hash",
        SELECTION,
        "_framed(candidate.entry.provider.id) + end",
        "end + _framed(candidate.entry.provider.id)",
        f"{WORLD_TESTS} -k scored-5",
    ),
    Mutant(
        "the merge reads one group ahead of the others",
        MERGE,
        "end = min(ends) if ends else None",
        "end = max(ends) if ends else None",
        f"{WORLD_TESTS} -k merged",
    ),
    Mutant(
        "the provider index ignores deadlines",
        PROVIDER_INDEX,
        "if inputs != entry.index_inputs or (entry.due_ms is not None and now_ms >= entry.due_ms):",
        "if inputs != entry.index_inputs:",
        HISTORY_TESTS,
    ),
    Mutant(
        "the shuffled order is kept when a provider becomes available",
        PROVIDER_INDEX,
        "self._order_seed, at = None, bisect_left(self.available_ids, id_)",
        "at = bisect_left(self.available_ids, id_)",
        HISTORY_TESTS,
    ),
    Mutant(
        "a few providers with capacity are not in the shuffled order",
        PROVIDER_INDEX,
        '        entries.sort(key=attrgetter("shuffle_position"))\n',
        "",
        f"{WORLD_TESTS} -k large",
    ),
    Mutant(
        "a freed slot does not start a tick",
        DECIDE,
        "ended = state.assignments - len(state.leases.by_id)",
        "ended = 0",
        f"{GUARD_TESTS} {HISTORY_TESTS}",
    ),
    Mutant(
        "a requester window that rolls does not start a tick",
        DECIDE,
        "min(rules.until_ms, rolls_ms)",
        "rules.until_ms",
        f"{GUARD_TESTS} -k window",
    ),
    Mutant(
        "a changed provider is not indexed again",
        "core/provider/apply.py",
        "    state.changed_providers.add(provider.id)\n",
        "",
        HISTORY_TESTS,
    ),
    Mutant(
        "the highest priority comes last",
        READY_QUEUE,
        "return _pack_key(_PRIORITY_MAX - job.priority",
        "return _pack_key(_PRIORITY_MAX + job.priority",
        READY_QUEUE_TESTS,
    ),
    Mutant(
        "a rebuilt ready queue has another order",
        READY_QUEUE,
        "keys.append(packed(_PRIORITY_MAX - job.priority",
        "keys.append(packed(_PRIORITY_MAX + job.priority",
        READY_QUEUE_TESTS,
    ),
    Mutant(
        "sorted keys compare blocks by the skipped prefix",
        "core/index/sorted_keys.py",
        "lambda block: block[-1][skip:]",
        "lambda block: block[-1]",
        READY_QUEUE_TESTS,
    ),
    Mutant(
        "a job that was leased before is packed as if it were new",
        "core/queue/live/packed_jobs.py",
        "        and not job.attempts\n",
        "",
        f"{LIVE_JOBS_TESTS} -k as_it_was_admitted",
    ),
    Mutant(
        "a packed job forgets the height at which it expires",
        "core/queue/live/packed_jobs.py",
        "        job.expires_height, job.is_public = until_height, is_public\n",
        "        job.is_public = is_public\n",
        f"{LIVE_JOBS_TESTS} -k without_loss",
    ),
    Mutant(
        "terms that no job has stay in memory",
        "core/queue/live/packed_jobs.py",
        "        if not uses[number]:\n",
        "        if False:\n",
        f"{LIVE_JOBS_TESTS} -k dictionary",
    ),
    Mutant(
        "an unpacked job has no reservation",
        "core/queue/live/live_jobs.py",
        "        self.reservations.records[fee] = Reservation(",
        "        Reservation(",
        f"{LIVE_JOBS_TESTS} -k dictionary",
    ),
    Mutant(
        "a job is packed although more than its fee is reserved",
        "core/queue/live/live_jobs.py",
        "            and reservation.amount == job.max_fee\n",
        "",
        f"{LIVE_JOBS_TESTS} -k reservation_says",
    ),
    Mutant(
        "new priorities do not reach packed jobs",
        "core/policy_change/apply.py",
        "            jobs.rewrite(job)\n",
        "",
        f"{LIVE_JOBS_TESTS} -k new_priorities",
    ),
    Mutant(
        "a snapshot stores the order by age as that by priority",
        "engine/snapshots/waiting_columns.py",
        "for key in group.by_age if key in at",
        "for key in group.by_priority if key in at",
        "tests/engine/snapshots/test_waiting_columns.py",
    ),
    Mutant(
        "an audit compares only the types of events",
        AUDIT,
        "if actual != right:",
        "if type(actual) is not type(right):",
        AUDIT_TESTS,
    ),
    Mutant(
        "an audit does not check assignments",
        AUDIT,
        "_TICK_EVENTS: Final = (JobAssigned, RequestersCounted)",
        "_TICK_EVENTS: Final = (RequestersCounted,)",
        AUDIT_TESTS,
    ),
]
