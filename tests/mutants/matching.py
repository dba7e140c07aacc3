"""Seeded faults in who gets which job: the guard, quotas, orders, the index, ticks that are not made, and the audit."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

TICK, TAKERS, MERGE, SUPPLY, DECIDE = (
    f"core/match/{each}.py" for each in ("tick", "takers", "merge", "supply", "decide")
)
WORLDS = "tests/core/test_match_worlds.py -k"
HISTORIES, GUARDS, LINES = (f"tests/core/test_{each}.py" for each in ("match_histories", "match_guards", "line"))
AUDITED = "tests/engine/test_audit.py"

MATCHING: Final = [
    Mutant(
        "the guard's turn comes one too early",
        TICK,
        "(counter + len(self.places)) % every",
        "(counter + len(self.places) + 1) % every",
        f"{WORLDS} shuffle-0",
    ),
    Mutant(
        "what the guard gave is given again",
        TICK,
        "if place in guarded:",
        "if False:",
        f"{WORLDS} shuffle-0",
    ),
    Mutant(
        "units are never used up within a tick",
        TICK,
        "taker.units[demand.at] -= demand.units",
        "pass",
        f"{WORLDS} shuffle-0",
    ),
    Mutant(
        "one provider has two replicas of a job",
        TICK,
        "if self.once is not None and seat.provider.id in self.once:",
        "if False:",
        f"{WORLDS} shuffle-0",
    ),
    Mutant(
        "spread forgets whom it has just given something",
        TAKERS,
        "self._next = min(self._next, load + 1)",
        "pass",
        f"{WORLDS} spread-0",
    ),
    Mutant(
        "equals are told apart by another hash",
        TAKERS,
        "_framed(taker.seat.provider.id) + end",
        "end + _framed(taker.seat.provider.id)",
        f"{WORLDS} scored-0",
    ),
    Mutant(
        "a group runs ahead of the others",
        MERGE,
        "end = min(ends) if ends else None",
        "end = max(ends) if ends else None",
        f"{WORLDS} merged",
    ),
    Mutant(
        "time alone changes nobody",
        SUPPLY,
        "if told != seat.told or (seat.due_ms is not None and now_ms >= seat.due_ms):",
        "if told != seat.told:",
        HISTORIES,
    ),
    Mutant(
        "an old order is kept when somebody comes or goes",
        SUPPLY,
        "self._order_of, at = None, bisect_left(self.listed, id_)",
        "at = bisect_left(self.listed, id_)",
        HISTORIES,
    ),
    Mutant(
        "the few who are free are not in the order of chance",
        SUPPLY,
        "        some.sort(key=self._places())\n",
        "",
        f"{WORLDS} large",
    ),
    Mutant(
        "a freed slot wakes nobody",
        DECIDE,
        "ended = state.assignments - len(state.leases.by_id)",
        "ended = 0",
        f"{GUARDS} {HISTORIES}",
    ),
    Mutant(
        "a window that rolls wakes nobody",
        DECIDE,
        "min(rules.until_ms, rolls_ms)",
        "rules.until_ms",
        f"{GUARDS} -k window",
    ),
    Mutant(
        "matching is not told that a provider changed",
        "core/provider/apply.py",
        "    state.stale.add(provider.id)\n",
        "",
        HISTORIES,
    ),
    Mutant(
        "the highest fee goes last",
        "core/queue/line.py",
        "return _packed(_HIGHEST - job.priority",
        "return _packed(_HIGHEST + job.priority",
        LINES,
    ),
    Mutant(
        "the line made at once has another order",
        "core/queue/line.py",
        "some.append(packed(_HIGHEST - job.priority",
        "some.append(packed(_HIGHEST + job.priority",
        LINES,
    ),
    Mutant(
        "ages are compared with keys",
        "core/ranks.py",
        "block[-1][skip:]",
        "block[-1]",
        LINES,
    ),
    Mutant(
        "an audit looks at the kind of event alone",
        "engine/audit.py",
        "if found != right:",
        "if type(found) is not type(right):",
        AUDITED,
    ),
    Mutant(
        "an audit believes that a forged assignment is an old one",
        "engine/audit.py",
        "and not state.adopted",
        "and True",
        AUDITED,
    ),
]
