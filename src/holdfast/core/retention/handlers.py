"""What retention publishes to the state machine."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import Commands, Events
from holdfast.core.retention import apply, decide, messages

COMMANDS: Final[Commands] = {
    messages.DropHot: decide.drop_hot,
    messages.DropWarm: decide.drop_warm,
    messages.ConfirmDeleted: decide.confirm_deleted,
    messages.Vacuum: decide.vacuum,
    messages.EndAudit: decide.end_audit,
}
EVENTS: Final[Events] = {
    messages.HotDropped: apply.apply_hot_dropped,
    messages.WarmDropped: apply.apply_warm_dropped,
    messages.BytesDeleted: apply.apply_bytes_deleted,
    messages.Vacuumed: apply.apply_vacuumed,
    messages.AuditEnded: apply.apply_audit_ended,
}
