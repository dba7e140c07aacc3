"""Seeded faults in what a run carries from one command to the next, and in where it is cut."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

TESTS: Final = "tests/core/test_runs.py"
DECISIONS: Final = "tests/engine/commands/test_decisions.py"
ENQUEUE, PROOF = "core/queue/decide.py", "core/proof/decide.py"

RUNS: Final = [
    Mutant(
        "a job of a run does not count the money that those before it reserve",
        ENQUEUE,
        "            money[caller] -= command.max_fee\n",
        "",
        TESTS,
    ),
    Mutant(
        "a job of a run does not count those before it in the queue",
        ENQUEUE,
        "            depth += command.quorum_m or 1\n",
        "",
        TESTS,
    ),
    Mutant(
        "a job of a run does not count those of its requester before it",
        ENQUEUE,
        "            in_flight[caller] += 1\n",
        "",
        TESTS,
    ),
    Mutant(
        "a repeat inside a run is admitted again",
        ENQUEUE,
        "            admitted[key] = EventNo(number + 1)\n",
        "",
        TESTS,
    ),
    Mutant(
        "a run goes on over an idempotency key that it has used",
        ENQUEUE,
        "                idempotency_keys.add(idempotency)\n",
        "                pass\n",
        TESTS,
    ),
    Mutant(
        "a second ACK inside a run is a second event",
        "core/lease/decide.py",
        "            acked.add(lease.id)\n",
        "",
        TESTS,
    ),
    Mutant(
        "a run goes on over a lease that it has a submission of",
        PROOF,
        "            submitted.add(event.lease_id)\n",
        "            pass\n",
        TESTS,
    ),
    Mutant(
        "a run goes on over a lease that it has a verdict on",
        PROOF,
        "            judged.add(lease.id)\n",
        "",
        TESTS,
    ),
    Mutant(
        "a run goes on over a provider whose health it changes",
        PROOF,
        "                changed.add(lease.provider_id)\n",
        "                pass\n",
        TESTS,
    ),
    Mutant(
        "an event without effect at the end of a batch has no number",
        "core/state_machine.py",
        "    state.last_event = last\n",
        "",
        TESTS,
    ),
    Mutant(
        "a repeat of a privileged command names an event that the records have moved",
        "core/state_machine.py",
        "    if answer.repeat_of is None or answer.repeat_of <= before:\n",
        "    if True:\n",
        TESTS,
    ),
    Mutant(
        "a rollback that an operator asks for is overtaken by later commands",
        "engine/commands/inbox.py",
        "    return type(command.command) if isinstance(command, PrivilegedCommand) else type(command)\n",
        "    return type(command)\n",
        f"{DECISIONS} -k rollback",
    ),
    Mutant(
        "a batch takes commands however many bytes are beside it",
        "engine/commands/decisions.py",
        "        return self.attached_bytes >= ATTACHED_BYTES_MAX\n",
        "        return False\n",
        f"{DECISIONS} -k many_bytes",
    ),
    Mutant(
        "an agent does not count the leases that run when it is offered more",
        "agent/leases/slots.py",
        "        if self._running.total() + len(self._expected)",
        "        if len(self._expected)",
        "tests/agent/programs/test_own_work.py -k cannot_work",
    ),
]
