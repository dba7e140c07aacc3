"""Walks through all short histories of a spool, crashes at every point of each, and reopens from every state left."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import blake2b
from itertools import product

from tests.spool.crash.cuts import contents
from tests.spool.crash.disk import Content, Fault, SimulatedDisk
from tests.spool.crash.laws import Broken, Promises, kept_or_quarantined
from tests.spool.crash.life import Cut, Life, Setup


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


def _unacked(life: Life) -> int:
    return life.spool.acked_sequence + 1 if life.spool else 0


def _emit(count: int) -> Callable[[Life], None]:
    def deed(life: Life) -> None:
        life.emit(count)
        life.step()

    return deed


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


def _ack_again(life: Life) -> None:
    """An old ack comes late."""
    life.ack(1)


DEEDS: dict[str, Callable[[Life], None]] = {
    "o": Life.open,
    "E": _emit(1),
    "B": _emit(3),
    "A": lambda life: life.ack(life.spool.spooled_sequence if life.spool else 0),
    "H": lambda life: life.ack(_unacked(life)),
    "L": _ack_again,
    "C": Life.compact,
    "X": _compact_while_writing,
    "R": _reopen,
    "K": _kill,
    "T": _torn(0.5),
    "U": _torn(0.9),
    "F": _finish,
    "O": _fill,
}
"""What may happen to a spool, by letter: a history is a word."""


MAYBE_DONE = ((errno.EIO, "nothing", 1), (errno.EIO, "all", 1), (errno.EIO, "nothing", 1_000))
HOW_IT_FAILS = {
    "write": ((errno.EIO, "half", 1), (errno.ENOSPC, "nothing", 2), (errno.EIO, "all", 1), (errno.EIO, "half", 1_000)),
    "sync": ((errno.EIO, "", 1), (errno.EIO, "", 2), (errno.EIO, "", 1_000)),
    "sync_folder": ((errno.EIO, "", 1), (errno.EIO, "", 2)),
}
"""By verb: with which error, how much of it happens all the same, and how many calls fail."""


class Explorer:
    """Counts the states it has opened. A law that does not hold ends it."""

    def __init__(self, setup: Setup, tears: int) -> None:
        self.setup, self.tears = setup, tears
        self.states: set[bytes] = set()
        """Distinct states from which a spool was opened."""
        self.checks = 0
        """How often one was: once for every set of promises that a state can meet."""
        self._checked: set[bytes] = set()
        self._recovered: dict[bytes, dict[str, bytes]] = {}
        """What a state holds when it is opened, as long as one history is walked through."""
        self.kinds: Counter[str] = Counter()

    # -------------------------------------------------------------------------------------------- one history

    def history(self, word: str) -> None:
        """Run it, crashing at every point of its last deed."""
        self._recovered.clear()
        life = self.lived(word[:-1])
        life.point = lambda: self._crash(life, self.tears, 1)
        DEEDS[word[-1]](life)
        life.look()
        self._crash(life, self.tears, 1)

    def lived(self, word: str) -> Life:
        life = Life(self.setup, SimulatedDisk(None, self.setup.capacity), Promises())
        for letter in word:
            DEEDS[letter](life)
            life.look()
        return life

    # -------------------------------------------------------------------------------------------- one fault

    def faults(self, word: str) -> int:
        """The same, with each changing call of the last deed failing in turn; how many faults were tried."""
        sound = self.lived(word[:-1])
        before = sound.disk.calls
        DEEDS[word[-1]](sound)
        verbs = sound.disk.verbs[before:] if sound.disk.calls > before else []
        count = 0
        for call, verb in enumerate(verbs, before + 1):
            for code, how, times in HOW_IT_FAILS.get(verb, MAYBE_DONE):
                self._with_fault(word, Fault(call, code, times, how))
                count += 1
        return count

    def _with_fault(self, word: str, fault: Fault) -> None:
        life = self.lived(word[:-1])
        life.is_strict = False
        disk, life.disk.faults = life.disk, (fault,)
        life.point = lambda: self._crash(life, 1, 0, faulty=True) if disk.calls >= fault.call else None
        DEEDS[word[-1]](life)
        if life.spool is None:
            life.kill()
            life.open()
        life.look()
        if life.emit():
            life.step()
        life.look()
        self._crash(life, 1, 0, faulty=True)

    # -------------------------------------------------------------------------------------------- one crash

    def _crash(self, life: Life, tears: int, depth: int, *, faulty: bool = False) -> None:
        """The power fails here, in every way; or only the process dies."""
        kind = "power cut" if depth else "power cut after a fault" if faulty else "second power cut"
        key = repr((life.promises.key(), depth)).encode()
        origin = b"" if life.origin is None else digest_of(life.origin)
        for content in contents(life.disk, tears):
            digest = digest_of(content)
            if self._is_due(kind, digest, key, origin, life.origin):
                self._revive(SimulatedDisk(content, life.disk.capacity), life, depth, digest)
        if depth:
            self._killed(life, key, origin)

    def _killed(self, life: Life, key: bytes, origin: bytes) -> None:
        disk = life.disk
        unsure = [(one.verb, one.at, int(one.fate)) for inode in disk.names.values() for one in inode.changes]
        names = [(one.name, one.gone) for one in disk.changes]
        if not unsure and not names:
            return  # the same as a power cut
        digest = blake2b(repr((unsure, names)).encode() + digest_of(disk.content()), digest_size=12).digest()
        if self._is_due("kill", digest, key, origin, life.origin):
            self._revive(disk.copied(), life, 1, digest)

    def _is_due(self, kind: str, digest: bytes, key: bytes, origin: bytes, found: Content | None) -> bool:
        """A state is opened again where more was promised, where the first look did not crash once more, or where
        another recovery led to it and what that one had found must not be lost: that is compared without opening it."""
        is_new = self.is_new(kind, digest, key)
        if found is None or not self._is_unchecked(digest + origin):
            return is_new
        if not is_new and digest in self._recovered:
            kept_or_quarantined(found, self._recovered[digest])
            return False
        return True

    def is_new(self, kind: str, digest: bytes, key: bytes) -> bool:
        """Whether this state was not yet held to these promises."""
        if digest not in self.states:
            self.states.add(digest)
            self.kinds[kind] += 1
        return self._is_unchecked(digest + key)

    def _is_unchecked(self, what: bytes) -> bool:
        check = blake2b(what, digest_size=12).digest()
        if check in self._checked:
            return False
        self._checked.add(check)
        return True

    def _revive(self, disk: SimulatedDisk, crashed: Life, depth: int, digest: bytes) -> None:
        """Open what is left and go on: one more record, one more look. While recovering it may crash again."""
        self.checks += 1
        life = Life(self.setup, disk, crashed.promises.copied())
        if depth:
            life.point = lambda: self._crash(life, 1, depth - 1)
        else:
            disk.point = _nothing
        life.open()
        if crashed.origin is not None and life.spool is not None:
            self._recovered[digest] = after = dict(disk.content())
            kept_or_quarantined(crashed.origin, after)
        if life.emit():
            life.step()
            if life.tickets:
                raise Broken("a reopened spool goes on", "a new record is not spooled")
        life.look()


def _nothing() -> None:
    """No crash here, and nothing to be noted before the next deed is done."""


def digest_of(content: Content) -> bytes:
    known = blake2b(digest_size=12)
    for name, raw in content:
        known.update(b"%d %s %d\0" % (len(name), name.encode(), len(raw)))
        known.update(raw)
    return known.digest()


def words(alphabet: str, length: int) -> Iterable[str]:
    """All histories up to this length, short ones first; after the end of a session nothing new begins."""
    for size in range(length + 1):
        for letters in product(alphabet, repeat=size):
            yield "o" + "".join(letters)
