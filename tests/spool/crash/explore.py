"""Walks through all short histories of a spool, crashes at every point of each, and reopens from every state left."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b

from tests.spool.crash import invariants
from tests.spool.crash.actions import ACTIONS, FAILURES_BY_VERB, FAILURES_OF_OTHER_VERBS
from tests.spool.crash.crash_contents import crash_contents
from tests.spool.crash.invariants import InvariantBroken, Promises, check_kept_or_quarantined
from tests.spool.crash.simulated_disk import Content, Fault, SimulatedDisk
from tests.spool.crash.spool_run import Setup, SpoolRun

FIRST, SECOND, AFTER_A_FAULT, KILL = "power cut", "second power cut", "power cut after a fault", "kill"
EVERY_BYTE = 1 << 20


class Explorer:
    """Counts the states it has opened. A broken invariant ends it."""

    def __init__(self, setup: Setup, tears: int) -> None:
        self.setup, self.tears = setup, tears
        self.states: set[bytes] = set()
        """Distinct states that were found."""
        self.judged: set[bytes] = set()
        """Those from which a spool was opened and checked against all invariants."""
        self.checks = 0
        """How often one was: once for every set of promises that a state can meet."""
        self._checked: set[bytes] = set()
        self._recovered: dict[bytes, dict[str, bytes]] = {}
        """What a state holds when it is opened, as long as one history is walked through."""
        self.kinds: Counter[str] = Counter()

    # -------------------------------------------------------------------------------------------- one history

    def explore(self, word: str) -> None:
        """Run it, crashing at every point of its last action."""
        self._recovered.clear()
        life = self.run_history(word[:-1])
        life.point = lambda: self._crash(life, FIRST, self.tears, 1)
        ACTIONS[word[-1]](life)
        life.check_offered()
        self._crash(life, FIRST, self.tears, 1)

    def torn(self, word: str) -> None:
        """The same, with each write torn at every byte of it; no second crash."""
        self._recovered.clear()
        life = self.run_history(word[:-1])
        life.point = lambda: self._crash(life, FIRST, EVERY_BYTE, 0)
        ACTIONS[word[-1]](life)

    def run_history(self, word: str) -> SpoolRun:
        life = SpoolRun(self.setup, SimulatedDisk(None, self.setup.capacity), Promises())
        for letter in word:
            ACTIONS[letter](life)
            life.check_offered()
        return life

    # -------------------------------------------------------------------------------------------- one fault

    def faults(self, word: str) -> int:
        """The same, with each changing call of the last action failing in turn; how many faults were tried."""
        sound = self.run_history(word[:-1])
        before = sound.disk.calls
        ACTIONS[word[-1]](sound)
        verbs = sound.disk.verbs[before:] if sound.disk.calls > before else []
        count = 0
        for call, verb in enumerate(verbs, before + 1):
            for code, how, times in FAILURES_BY_VERB.get(verb, FAILURES_OF_OTHER_VERBS):
                self._with_fault(word, Fault(call, code, times, how))
                count += 1
        return count

    def _with_fault(self, word: str, fault: Fault) -> None:
        life = self.run_history(word[:-1])
        life.is_strict = False
        disk, life.disk.faults = life.disk, (fault,)
        life.point = lambda: self._crash(life, AFTER_A_FAULT, 1, 0) if disk.calls >= fault.call else None
        ACTIONS[word[-1]](life)
        if life.spool is None:
            life.kill()
            life.open()
        life.check_offered()
        if life.emit():
            life.step()
        life.check_offered()
        self._crash(life, AFTER_A_FAULT, 1, 0)

    # -------------------------------------------------------------------------------------------- one crash

    def _crash(self, life: SpoolRun, kind: str, tears: int, depth: int) -> None:
        """The power fails here, in every way; or only the process dies."""
        key = life.key() + b"%d" % depth
        origin = b"" if life.origin is None else digest_of(life.origin)
        for content in crash_contents(life.disk, tears):
            digest = digest_of(content)
            if self._is_due(kind, digest, key, origin, life.origin):
                self._reopen(SimulatedDisk(content, life.disk.capacity), life, depth, digest)
        if depth or kind is AFTER_A_FAULT:
            self._killed(life, key, origin)

    def _killed(self, life: SpoolRun, key: bytes, origin: bytes) -> None:
        disk = life.disk
        unsure = [(name, inode.base, inode.uncertain_changes()) for name, inode in disk.names.items() if inode.changes]
        names = [(one.name, one.gone) for one in disk.changes]
        if not unsure and not names:
            return  # the same as a power cut
        digest = blake2b(repr((unsure, names)).encode() + digest_of(disk.content()), digest_size=12).digest()
        if self._is_due(KILL, digest, key, origin, life.origin):
            self._reopen(disk.copy(), life, 1, digest)

    def _is_due(self, kind: str, digest: bytes, key: bytes, origin: bytes, found: Content | None) -> bool:
        """A state is opened again where more was promised, where the first look did not crash once more, or where
        another recovery led to it and what that one had found must not be lost: that is compared without opening it."""
        is_new = self.is_new(kind, digest, key)
        if found is None or not self._is_unchecked(digest + origin):
            return is_new
        if not is_new and digest in self._recovered:
            check_kept_or_quarantined(found, self._recovered[digest])
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

    def _reopen(self, disk: SimulatedDisk, crashed: SpoolRun, depth: int, digest: bytes) -> None:
        """Open what is left and go on: one more record, one more look. Meanwhile, and after it, it may crash again."""
        self.checks += 1
        life = SpoolRun(crashed.setup, disk, crashed.promises.copy(), dict(crashed.closed_sessions))
        if life.closed_sessions:
            life.check_reclaimable()
        if depth:
            life.point = lambda: self._crash(life, SECOND, 1, depth - 1)
        else:
            disk.point = _nothing
        life.open()
        if crashed.origin is not None and life.spool is not None:
            self._recovered[digest] = after = dict(disk.content())
            check_kept_or_quarantined(crashed.origin, after)
        if life.emit():
            life.step()
            if life.tickets:
                raise InvariantBroken(invariants.CONTINUES, "a new record is not spooled")
        life.check_offered()
        if depth:  # what the reopened one has promised must hold, too
            self._crash(life, SECOND, 1, depth - 1)
        if life.closed_sessions:
            life.check_closed_sessions()
        self.judged.add(digest)


def _nothing() -> None:
    """No crash here, and nothing to be noted before the next action is done."""


def digest_of(content: Content) -> bytes:
    known = blake2b(digest_size=12)
    for name, raw in content:
        known.update(b"%d %s %d\0" % (len(name), name.encode(), len(raw)))
        known.update(raw)
    return known.digest()
