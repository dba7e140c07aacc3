"""What may happen to a spool, one character each: a history is a string of them; and how disk calls may fail."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import product

from tests.spool.crash.spool_run import PowerCut, SpoolRun


def _emit(count: int) -> Callable[[SpoolRun], None]:
    def action(life: SpoolRun) -> None:
        life.emit(count)
        life.step()

    return action


def _fill(life: SpoolRun) -> None:
    """Emit until the cap says no, and let it say its last word."""
    for _ in range(40):
        if not life.emit():
            break
        life.step()
    life.step()


def _power_cut(which: float) -> Callable[[SpoolRun], None]:
    def action(life: SpoolRun) -> None:
        """The power fails while two records are written, and leaves a part of them; then it is opened again."""
        if life.spool is None:
            return
        life.emit(2)
        before = life.disk.calls

        def fail() -> None:
            if life.disk.calls > before and life.disk.verbs[-1] == "write":
                raise PowerCut

        point, life.point = life.point, fail
        with suppress(PowerCut):
            life.step()
        life.point = point
        life.cut_power(which)
        life.open()

    return action


def _ack_all(life: SpoolRun) -> None:
    life.ack(life.spool.spooled_sequence if life.spool else 0)


def _ack_next(life: SpoolRun) -> None:
    life.ack(life.spool.acked_sequence + 1 if life.spool else 0)


def _ack_again(life: SpoolRun) -> None:
    """An old ack comes late."""
    life.ack(1)


def _reopen(life: SpoolRun) -> None:
    life.close()
    life.open()


def _kill(life: SpoolRun) -> None:
    life.emit()
    life.kill()
    life.open()


def _finish(life: SpoolRun) -> None:
    life.emit(1, "BLOCK_FENCE")
    life.step()
    life.close(final=True)
    life.open()


def _compact_while_writing(life: SpoolRun) -> None:
    life.emit(2)
    life.compact()


ACTIONS: dict[str, Callable[[SpoolRun], None]] = {
    "o": SpoolRun.open,
    "E": _emit(1),
    "B": _emit(3),
    "A": _ack_all,
    "H": _ack_next,
    "L": _ack_again,
    "C": SpoolRun.compact,
    "X": _compact_while_writing,
    "R": _reopen,
    "K": _kill,
    "T": _power_cut(0.5),
    "U": _power_cut(0.9),
    "F": _finish,
    "O": _fill,
    "N": SpoolRun.open_another_session,
}


def histories(alphabet: str, length: int) -> Iterable[str]:
    """All histories of up to `length` actions after the opening, short ones first."""
    for size in range(length + 1):
        for actions in product(alphabet, repeat=size):
            yield "o" + "".join(actions)


FAILURES_OF_OTHER_VERBS = ((errno.EIO, "nothing", 1), (errno.EIO, "all", 1), (errno.EIO, "nothing", 1_000))
FAILURES_BY_VERB = {
    "write": ((errno.EIO, "half", 1), (errno.ENOSPC, "nothing", 2), (errno.EIO, "all", 1), (errno.EIO, "half", 1_000)),
    "sync": ((errno.EIO, "", 1), (errno.EIO, "", 2), (errno.EIO, "", 1_000)),
    "sync_folder": ((errno.EIO, "", 1), (errno.EIO, "", 2)),
}
"""By verb: with which error, how much of it happens all the same, and how many calls fail."""
