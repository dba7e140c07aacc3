"""How a call can fail: the node refused it, by a name that has its class, or there was no answer.

try:
    client.result(job)
except NoResultYetError: ...     # one refusal
except NodeRefused as refusal:   # any of them: refusal.name, .rule, .message, .hint
"""

from __future__ import annotations

from typing import Any


class NodeRefused(Exception):
    """The node refused the request, which changed nothing; `name`, `rule` and `hint` are the refusal's."""

    def __init__(
        self, *, code: int, name: str, rule: str, message: str, hint: str, details: dict[str, str] | None = None
    ) -> None:
        super().__init__(f"{rule}: {message}" + (f" ({hint})" if hint else ""))
        self.code, self.name, self.rule, self.message, self.hint = code, name, rule, message, hint
        self.details = details or {}

    def __reduce__(self) -> tuple[Any, ...]:
        """With its fields: outcomes travel between processes."""
        return _rebuild, (type(self), self.code, self.name, self.rule, self.message, self.hint, self.details)


def _rebuild(
    kind: type[NodeRefused], code: int, name: str, rule: str, message: str, hint: str, details: dict[str, str]
) -> NodeRefused:
    return kind(code=code, name=name, rule=rule, message=message, hint=hint, details=details)


class JobEnded(NodeRefused):
    """The job ended without a result: cancelled, expired or failed. Its fee was refunded."""


class NodeUnreachable(Exception):
    """No answer within the timeout: the request may or may not have taken effect; repeated with its key it is safe."""


class WaitTimeout(NodeUnreachable):
    """The job had not ended within the time that was given to `wait`; nothing happened to it."""
