"""The first bytes of an HTTP connection: only a whole head makes one (SEC-002)."""

from __future__ import annotations

from holdfast.api.front.opening import Opening


def check_head(first: bytes) -> Opening:
    """Whether these bytes are a whole head, or can become one. The parser decides what it means."""
    head = first.lstrip(b"\r\n")  # of clients that end a body with a line too many
    if head and not b"A" <= head[:1] <= b"Z":
        return Opening.FOREIGN
    return Opening.COMPLETE if b"\n\r\n" in head or b"\n\n" in head else Opening.INCOMPLETE
