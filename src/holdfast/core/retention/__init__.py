"""Retention (RET-001 … RET-004): which results' bytes may be let go, and what stays. Read: books, acts, decide, apply.

Results pass through three passes in the order of their events, which is the order of their heights. So each pass is a
mark that only moves forward, and a short list of those that it left behind, with the reason. Strays, bytes that no
result has, are in no such order: they are condemned as they are found, and deleted with the others.
"""

from holdfast.core.retention.books import Pass, is_dropped

__all__ = ["Pass", "is_dropped"]
