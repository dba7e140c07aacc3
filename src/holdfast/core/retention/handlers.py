"""What retention publishes to the state machine."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import Commands, Events
from holdfast.core.retention import apply, decide
from holdfast.core.retention.messages import (
    AuditEnded,
    BytesDeleted,
    ConfirmDeleted,
    DropHot,
    DropWarm,
    EndAudit,
    HotDropped,
    Vacuum,
    Vacuumed,
    WarmDropped,
)

COMMANDS: Final[Commands] = {
    DropHot: decide.drop_hot,
    DropWarm: decide.drop_warm,
    ConfirmDeleted: decide.confirm_deleted,
    Vacuum: decide.vacuum,
    EndAudit: decide.end_audit,
}
EVENTS: Final[Events] = {
    HotDropped: apply.apply_hot_dropped,
    WarmDropped: apply.apply_warm_dropped,
    BytesDeleted: apply.apply_bytes_deleted,
    Vacuumed: apply.apply_vacuumed,
    AuditEnded: apply.apply_audit_ended,
}
