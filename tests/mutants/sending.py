"""Seeded faults in how evidence is sent: what may fly, which ack is believed, what is read back, who is waited for."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

CUSTODY, DELIVERY, LEGACY, BACKLOG = "agent/custody.py", "agent/delivery.py", "agent/legacy.py", "agent/backlog.py"
DECIDED, SIMULATED = "tests/agent/test_custody.py", "tests/agent/test_custody_simulated.py -k whatever"
SHIPPED, RUNS = "tests/agent/test_shipping.py", "tests/doors/test_evidence_runs.py"

SENDING: Final = [
    Mutant(
        "an ack above what was sent is believed",
        CUSTODY,
        "        if acked > self.ceiling:\n",
        "        if acked > 2**64:\n",
        f"{DECIDED} -k not_sent_is_refused",
    ),
    Mutant(
        "what an earlier stream has sent is forgotten",
        CUSTODY,
        "        self._before, self._credit = max(after, before), credit\n",
        "        self._before, self._credit = after, credit\n",
        SIMULATED,
    ),
    Mutant(
        "a record is passed over that the node has not acked",
        CUSTODY,
        "        if last > self.heard:\n",
        "        if last > self.heard + 1:\n",
        SIMULATED,
    ),
    Mutant(
        "an ack that repeats counts as progress",
        CUSTODY,
        "        if acked > self.heard:\n            self.heard, self._moved_ms = acked, now_ms\n",
        "        self.heard, self._moved_ms = max(acked, self.heard), now_ms\n",
        f"{DECIDED} -k stand_still",
    ),
    Mutant(
        "nobody watches the acks",
        DELIVERY,
        "                if left_ms <= 0:\n",
        "                if left_ms <= -(1 << 40):\n",
        f"{SHIPPED} -k stand_still",
    ),
    Mutant(
        "0 from a v0.1 receiver is taken for a mark",
        LEGACY,
        "        return Mark(told.acked or None, told.credit)\n",
        "        return Mark(told.acked, told.credit)\n",
        f"{SHIPPED} -k means_unknown",
    ),
    Mutant(
        "an ack for another session is taken",
        LEGACY,
        "        if (ack.channel_id, ack.playout_session_id) != self._whose:\n",
        "        if ack.channel_id != self._whose[0]:\n",
        f"{SHIPPED} -k another_session",
    ),
    Mutant(
        "what v0.1 cannot say is left out",
        LEGACY,
        "            if isinstance(message, str):  # it is never passed over in silence\n",
        "            if isinstance(message, str):\n                continue\n            if not message:\n",
        f"{SHIPPED} -k never_passed_over",
    ),
    Mutant(
        "older sessions are sent newest first",
        BACKLOG,
        "            old = self.waiting[0]\n",
        "            old = self.waiting[-1]\n",
        f"{SHIPPED} -k oldest_first",
    ),
    Mutant(
        "of many records only the beginnings are compared",
        "doors/runs.py",
        "        and list(map(_sequence, found)) == list(range(first, first + len(lines)))\n",
        "",
        RUNS,
    ),
    Mutant(
        "what asks for something is stored like what does not",
        "doors/runs.py",
        "        and types.isdisjoint(not_plain)\n",
        "",
        RUNS,
    ),
]
