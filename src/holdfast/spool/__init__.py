"""The durable outbox, usable alone: what was emitted stays here until the receiver provably has it."""

from holdfast.core.policy.knobs import SpoolPolicy
from holdfast.core.refusal import Corrupt, Refused, Unavailable
from holdfast.spool.channel import Standing, undelivered
from holdfast.spool.reader import Batch
from holdfast.spool.spool import Spool
from holdfast.spool.ticket import Ticket
from holdfast.spool.writer import Mode

__all__ = [
    "Batch",
    "Corrupt",
    "Mode",
    "Refused",
    "Spool",
    "SpoolPolicy",
    "Standing",
    "Ticket",
    "Unavailable",
    "undelivered",
]
