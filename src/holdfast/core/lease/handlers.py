"""What leases publish to the state machine."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import CommandRuns, Commands, EventRuns, Events
from holdfast.core.lease import apply, decide, messages

COMMAND_RUNS: Final[CommandRuns] = {messages.AckLease: decide.ack}
COMMANDS: Final[Commands] = {
    messages.RenewLease: decide.renew,
    messages.DeclineLease: decide.decline,
    messages.FailLease: decide.fail,
    messages.ExpireDue: decide.expire_due,
}
EVENT_RUNS: Final[EventRuns] = {
    messages.JobAssigned: apply.apply_jobs_assigned,
    messages.LeaseAcked: apply.apply_leases_acked,
    messages.CompletionSubmitted: apply.apply_completions_submitted,
}
EVENTS: Final[Events] = {
    messages.LeaseRenewed: apply.apply_lease_renewed,
    messages.LeaseClosed: apply.apply_lease_closed,
}
