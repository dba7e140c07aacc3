"""Whether a job was lost or done twice: the requester's receipts against what the store says."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.cli.demonstration.history import History
from holdfast.cli.demonstration.notebook import Note, Said


class Verdict(msgspec.Struct, frozen=True):
    """`lost` are receipts that the store does not honour; `twice` are jobs taken in or finished more than once."""

    receipts: int
    lost: list[Note]
    twice: list[str]

    @property
    def is_good(self) -> bool:
        return not self.lost and not self.twice


def judge(notes: Iterable[Note], history: History, *, is_over: bool = False) -> Verdict:
    """A receipt is honoured when the very event it names took this job in, and the job has not ended without a result.

    When the demo is over, honoured also means: one proof was accepted and a block holds it.
    """
    notes = list(notes)
    receipts = [note for note in notes if note.said is Said.CONFIRMED]
    lost = [note for note in receipts if not _is_kept(note, history, is_over=is_over)]
    twice = [job.id for job in history.jobs.values() if len(job.admitted) > 1 or len(job.accepted) > 1]
    return Verdict(len(receipts), lost, twice + _nobody_asked_for(notes, history))


def _is_kept(note: Note, history: History, *, is_over: bool) -> bool:
    job = history.jobs.get(note.task_id)
    if job is None or note.event not in job.admitted or job.ended:
        return False
    return not is_over or (bool(job.accepted) and job.accepted[0].height <= history.head)


def _nobody_asked_for(notes: list[Note], history: History) -> list[str]:
    """Asking again must make no second job: a request without a receipt explains one job that no receipt names."""
    named = {note.task_id for note in notes if note.said is Said.CONFIRMED}
    unanswered = len({note.number for note in notes}) - len(named)
    return [id_ for id_ in history.jobs if id_ not in named][max(0, unanswered) :]
