"""Retention (RET-001 … RET-004): which bytes and records may be deleted, and what stays.

Results go through the passes in the order of their events, which is the order of their heights. So each pass is a
position that only moves forward, and a short list of skipped results with the reason. Orphans, bytes that no result
has, are in no such order: they are scheduled for deletion as they are found.
Read: model, messages, decide, apply, invariants.
"""

from holdfast.core.retention.model import Pass, is_dropped

__all__ = ["Pass", "is_dropped"]
