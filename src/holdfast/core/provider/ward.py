"""Who needs looking after when: an index beside the providers, so that one who is well costs nothing (PRV-002).

It is made from the records and never a fact of its own: by time, by height, whose a changed key is, and who has
nothing to lose.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.core.agenda import Agenda
from holdfast.core.values import ProviderId


class Ward(msgspec.Struct):
    """When each provider is due. One that is due at no time is in none of these."""

    agenda: Agenda = msgspec.field(default_factory=Agenda)
    due: dict[ProviderId, int] = {}
    """Where in the agenda each one is."""
    heights: dict[ProviderId, int] = {}
    """Who waits for a block of this height: the jailed, and those whose stake is locked. They are few."""
    keyring: dict[bytes, ProviderId] = {}
    """Keys that were changed to, and whose they are."""
    strangers: set[ProviderId] = set()
    """Who has nothing at stake and has not retired: anybody with a key of its own making can be one."""

    def note(self, id_: ProviderId, due_ms: int | None, height: int | None) -> None:
        """From now on this one is due then, and not when it was due before."""
        before_ms = self.due.get(id_)
        if before_ms != due_ms:
            if before_ms is not None:
                self.agenda.remove(id_, before_ms)
                del self.due[id_]
            if due_ms is not None:
                self.agenda.put(id_, due_ms)
                self.due[id_] = due_ms
        if height is not None:
            self.heights[id_] = height
        else:
            self.heights.pop(id_, None)

    def meet(self, id_: ProviderId, *, is_stranger: bool) -> None:
        if is_stranger:
            self.strangers.add(id_)
        else:
            self.strangers.discard(id_)

    def is_due(self, now_ms: int, height: int) -> bool:
        next_ms = self.agenda.next_ms()
        return (next_ms is not None and next_ms <= now_ms) or any(each <= height for each in self.heights.values())

    def upto(self, now_ms: int, height: int) -> Iterator[ProviderId]:
        """Whoever may be due now, each once; the caller looks at the exact time."""
        waiting = {id_: None for id_, each in self.heights.items() if each <= height}
        yield from waiting
        for id_ in self.agenda.upto(now_ms):
            if id_ not in waiting:
                yield ProviderId(id_)
