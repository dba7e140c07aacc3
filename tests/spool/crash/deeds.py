"""What may happen to a spool, a letter each: a history is a word; and in which ways a call of the disk may fail."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import product

from tests.spool.crash.life import Cut, Life


def _emit(count: int) -> Callable[[Life], None]:
    def deed(life: Life) -> None:
        life.emit(count)
        life.step()

    return deed


def _fill(life: Life) -> None:
    """Emit until the cap says no, and let it say its last word."""
    for _ in range(40):
        if not life.emit():
            break
        life.step()
    life.step()


def _torn(which: float) -> Callable[[Life], None]:
    def deed(life: Life) -> None:
        """The power fails while two records are written, and leaves a part of them; then it is opened again."""
        if life.spool is None:
            return
        life.emit(2)
        before = life.disk.calls

        def fail() -> None:
            if life.disk.calls > before and life.disk.verbs[-1] == "write":
                raise Cut

        point, life.point = life.point, fail
        with suppress(Cut):
            life.step()
        life.point = point
        life.cut(which)
        life.open()

    return deed


def _ack_all(life: Life) -> None:
    life.ack(life.spool.spooled_sequence if life.spool else 0)


def _ack_next(life: Life) -> None:
    life.ack(life.spool.acked_sequence + 1 if life.spool else 0)


def _ack_again(life: Life) -> None:
    """An old ack comes late."""
    life.ack(1)


def _reopen(life: Life) -> None:
    life.close()
    life.open()


def _kill(life: Life) -> None:
    life.emit()
    life.kill()
    life.open()


def _finish(life: Life) -> None:
    life.emit(1, "BLOCK_FENCE")
    life.step()
    life.close(final=True)
    life.open()


def _compact_while_writing(life: Life) -> None:
    life.emit(2)
    life.compact()


DEEDS: dict[str, Callable[[Life], None]] = {
    "o": Life.open,
    "E": _emit(1),
    "B": _emit(3),
    "A": _ack_all,
    "H": _ack_next,
    "L": _ack_again,
    "C": Life.compact,
    "X": _compact_while_writing,
    "R": _reopen,
    "K": _kill,
    "T": _torn(0.5),
    "U": _torn(0.9),
    "F": _finish,
    "O": _fill,
    "N": Life.begin_another,
}


def words(alphabet: str, length: int) -> Iterable[str]:
    """All histories of up to so many deeds after the opening, short ones first."""
    for size in range(length + 1):
        for letters in product(alphabet, repeat=size):
            yield "o" + "".join(letters)


MAYBE_DONE = ((errno.EIO, "nothing", 1), (errno.EIO, "all", 1), (errno.EIO, "nothing", 1_000))
HOW_IT_FAILS = {
    "write": ((errno.EIO, "half", 1), (errno.ENOSPC, "nothing", 2), (errno.EIO, "all", 1), (errno.EIO, "half", 1_000)),
    "sync": ((errno.EIO, "", 1), (errno.EIO, "", 2), (errno.EIO, "", 1_000)),
    "sync_folder": ((errno.EIO, "", 1), (errno.EIO, "", 2)),
}
"""By verb: with which error, how much of it happens all the same, and how many calls fail."""
