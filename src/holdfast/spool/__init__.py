"""The durable outbox, usable alone: records stay here until the receiver has acknowledged them."""

from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.core.policy import SpoolPolicy
from holdfast.spool.channel import SessionStatus, undelivered_sessions
from holdfast.spool.reader import RecordBatch
from holdfast.spool.spool import Spool
from holdfast.spool.ticket import Ticket
from holdfast.spool.writer import Mode

__all__ = [
    "Corrupt",
    "Mode",
    "RecordBatch",
    "Refused",
    "SessionStatus",
    "Spool",
    "SpoolPolicy",
    "Ticket",
    "Unavailable",
    "undelivered_sessions",
]
