"""What leases publish to the state machine."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import CommandRuns, Commands, EventRuns, Events
from holdfast.core.lease import apply, decide
from holdfast.core.lease.messages import (
    AckLease,
    CompletionSubmitted,
    DeclineLease,
    ExpireDue,
    FailLease,
    JobAssigned,
    LeaseAcked,
    LeaseClosed,
    LeaseRenewed,
    RenewLease,
)

COMMAND_RUNS: Final[CommandRuns] = {AckLease: decide.ack}
COMMANDS: Final[Commands] = {
    RenewLease: decide.renew,
    DeclineLease: decide.decline,
    FailLease: decide.fail,
    ExpireDue: decide.expire_due,
}
EVENT_RUNS: Final[EventRuns] = {
    JobAssigned: apply.apply_jobs_assigned,
    LeaseAcked: apply.apply_leases_acked,
    CompletionSubmitted: apply.apply_completions_submitted,
}
EVENTS: Final[Events] = {LeaseRenewed: apply.apply_lease_renewed, LeaseClosed: apply.apply_lease_closed}
