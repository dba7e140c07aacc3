"""The three kinds of refusals and errors, each with the rule it follows and a hint for the human.

*Refused* is returned: expected, nothing changed. *Unavailable* is raised: the world failed, try again.
*Corrupt* is raised: what we hold contradicts itself, stop. One table in `api.error_codes` maps them to every protocol.
"""

from __future__ import annotations

import msgspec


class Refused(msgspec.Struct, frozen=True, gc=False):
    """A command or an input that a rule does not allow; it had no effect."""

    rule: str
    message: str
    hint: str = ""
    name: str = "Refused"
    """The error's own name where a rule gives it one (NotFound, NoResultYet, ProofConflict …)."""
    details: tuple[tuple[str, str], ...] = ()
    """Facts for programs, for example where pruned bytes are stored."""

    def __str__(self) -> str:
        return _format_message(self.rule, self.message, self.hint)


class Unavailable(Exception):
    """The outcome is unknown or cannot be reached now: a caller may retry with the same id."""

    def __init__(self, rule: str, message: str, hint: str = "") -> None:
        super().__init__(_format_message(rule, message, hint))
        self.rule, self.message, self.hint = rule, message, hint


class AccessDenied(Unavailable):
    """Another system does not accept our credentials: trying again soon is useless."""


class Fenced(Unavailable):
    """Another owner has taken the journal: this one must not write again."""


class Corrupt(Exception):
    """Stored facts contradict each other: never guessed around, the node stops and names the place."""

    def __init__(self, rule: str, message: str, hint: str = "") -> None:
        super().__init__(_format_message(rule, message, hint))
        self.rule, self.message, self.hint = rule, message, hint


def _format_message(rule: str, message: str, hint: str) -> str:
    return f"{rule}: {message} ({hint})" if hint else f"{rule}: {message}"
