"""Whether anything was lost or done twice: what the clients were told against what the store says."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.cli.demonstration.history import SLOTS, History
from holdfast.cli.demonstration.notebook import Note, Said


class Verdict(msgspec.Struct, frozen=True):
    """`lost` are confirmations the store does not know; `twice` are ids to which one thing happened more than once."""

    confirmed: int
    lost: list[Note]
    twice: list[tuple[str, str]]

    @property
    def is_good(self) -> bool:
        return not self.lost and not self.twice


def judge(notes: Iterable[Note], history: History) -> Verdict:
    """Confirmed means: the very event the client was told of is there, with this id, this deed and this amount."""
    confirmed = [note for note in notes if note.said is Said.CONFIRMED]
    lost = [note for note in confirmed if not _is_kept(note, history)]
    return Verdict(len(confirmed), lost, [key for key, deeds in history.deeds.items() if len(deeds) > 1])


def _is_kept(note: Note, history: History) -> bool:
    if note.kind == "finalize":
        return int(note.id) <= history.finalized  # a later block that is final makes the earlier ones final too
    deeds = history.deeds.get((SLOTS[note.kind], note.id), ())
    return any((deed.event, deed.kind, deed.amount) == (note.event, note.kind, note.amount) for deed in deeds)
