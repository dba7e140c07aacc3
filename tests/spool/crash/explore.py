"""Walks through all short histories of a spool, crashes at every point of each, and reopens from every state left."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b

from tests.spool.crash import laws
from tests.spool.crash.cuts import contents
from tests.spool.crash.deeds import DEEDS, HOW_IT_FAILS, MAYBE_DONE
from tests.spool.crash.disk import Content, Fault, SimulatedDisk
from tests.spool.crash.laws import Broken, Promises, kept_or_quarantined
from tests.spool.crash.life import Life, Setup

FIRST, SECOND, AFTER_A_FAULT, KILL = "power cut", "second power cut", "power cut after a fault", "kill"
EVERY_BYTE = 1 << 20


class Explorer:
    """Counts the states it has opened. A law that does not hold ends it."""

    def __init__(self, setup: Setup, tears: int) -> None:
        self.setup, self.tears = setup, tears
        self.states: set[bytes] = set()
        """Distinct states that were found."""
        self.judged: set[bytes] = set()
        """Those from which a spool was opened and held to all laws."""
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
        life.point = lambda: self._crash(life, FIRST, self.tears, 1)
        DEEDS[word[-1]](life)
        life.look()
        self._crash(life, FIRST, self.tears, 1)

    def torn(self, word: str) -> None:
        """The same, with each write torn at every byte of it; no second crash."""
        self._recovered.clear()
        life = self.lived(word[:-1])
        life.point = lambda: self._crash(life, FIRST, EVERY_BYTE, 0)
        DEEDS[word[-1]](life)

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
        life.point = lambda: self._crash(life, AFTER_A_FAULT, 1, 0) if disk.calls >= fault.call else None
        DEEDS[word[-1]](life)
        if life.spool is None:
            life.kill()
            life.open()
        life.look()
        if life.emit():
            life.step()
        life.look()
        self._crash(life, AFTER_A_FAULT, 1, 0)

    # -------------------------------------------------------------------------------------------- one crash

    def _crash(self, life: Life, kind: str, tears: int, depth: int) -> None:
        """The power fails here, in every way; or only the process dies."""
        key = life.key() + b"%d" % depth
        origin = b"" if life.origin is None else digest_of(life.origin)
        for content in contents(life.disk, tears):
            digest = digest_of(content)
            if self._is_due(kind, digest, key, origin, life.origin):
                self._revive(SimulatedDisk(content, life.disk.capacity), life, depth, digest)
        if depth or kind is AFTER_A_FAULT:
            self._killed(life, key, origin)

    def _killed(self, life: Life, key: bytes, origin: bytes) -> None:
        disk = life.disk
        unsure = [(name, inode.base, inode.told()) for name, inode in disk.names.items() if inode.changes]
        names = [(one.name, one.gone) for one in disk.changes]
        if not unsure and not names:
            return  # the same as a power cut
        digest = blake2b(repr((unsure, names)).encode() + digest_of(disk.content()), digest_size=12).digest()
        if self._is_due(KILL, digest, key, origin, life.origin):
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
        """Open what is left and go on: one more record, one more look. Meanwhile, and after it, it may crash again."""
        self.checks += 1
        life = Life(crashed.setup, disk, crashed.promises.copied(), dict(crashed.left))
        if life.left:
            life.look_at_what_may_go()
        if depth:
            life.point = lambda: self._crash(life, SECOND, 1, depth - 1)
        else:
            disk.point = _nothing
        life.open()
        if crashed.origin is not None and life.spool is not None:
            self._recovered[digest] = after = dict(disk.content())
            kept_or_quarantined(crashed.origin, after)
        if life.emit():
            life.step()
            if life.tickets:
                raise Broken(laws.GOES_ON, "a new record is not spooled")
        life.look()
        if depth:  # what the reopened one has promised must hold, too
            self._crash(life, SECOND, 1, depth - 1)
        if life.left:
            life.look_at_the_left()
        self.judged.add(digest)


def _nothing() -> None:
    """No crash here, and nothing to be noted before the next deed is done."""


def digest_of(content: Content) -> bytes:
    known = blake2b(digest_size=12)
    for name, raw in content:
        known.update(b"%d %s %d\0" % (len(name), name.encode(), len(raw)))
        known.update(raw)
    return known.digest()
