"""How Holdfast says no: three kinds, each with the rule it follows and a hint for the human.

*Refused* is returned: expected, nothing changed. *Unavailable* is raised: the world failed, try again.
*Corrupt* is raised: what we hold contradicts itself, stop. One table in `doors.answers` maps them to every protocol.
"""

from __future__ import annotations

import msgspec


class Refused(msgspec.Struct, frozen=True, gc=False):
    """A command or an input that a rule does not allow; it had no effect."""

    rule: str
    says: str
    hint: str = ""
    name: str = "Refused"
    """The error's own name where a rule gives it one (NotFound, NoResultYet, ProofConflict …)."""
    about: tuple[tuple[str, str], ...] = ()
    """Facts for programs: where pruned bytes are found, for one."""

    def __str__(self) -> str:
        return _sentence(self.rule, self.says, self.hint)


class Unavailable(Exception):
    """The outcome is not known or cannot be had now: a caller may ask again with the same id."""

    def __init__(self, rule: str, says: str, hint: str = "") -> None:
        super().__init__(_sentence(rule, says, hint))
        self.rule, self.says, self.hint = rule, says, hint


class Fenced(Unavailable):
    """Somebody else owns the journal now: this owner must not write again."""


class Corrupt(Exception):
    """Stored facts contradict each other: never guessed around, the node stops and says where."""

    def __init__(self, rule: str, says: str, hint: str = "") -> None:
        super().__init__(_sentence(rule, says, hint))
        self.rule, self.says, self.hint = rule, says, hint


def _sentence(rule: str, says: str, hint: str) -> str:
    return f"{rule}: {says} ({hint})" if hint else f"{rule}: {says}"
