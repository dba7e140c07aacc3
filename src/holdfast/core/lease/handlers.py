"""What leases publish to the state machine."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import Commands, Events
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

COMMANDS: Final[Commands] = {
    AckLease: decide.ack,
    RenewLease: decide.renew,
    DeclineLease: decide.decline,
    FailLease: decide.fail,
    ExpireDue: decide.expire_due,
}
EVENTS: Final[Events] = {
    JobAssigned: apply.apply_job_assigned,
    LeaseAcked: apply.apply_lease_acked,
    LeaseRenewed: apply.apply_lease_renewed,
    LeaseClosed: apply.apply_lease_closed,
    CompletionSubmitted: apply.apply_completion_submitted,
}
