"""Damage that no crash makes: flipped bits, lost and zeroed and doubled lines; it is told, and never passed over."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.spool.crash.disk import Content, SimulatedDisk
from tests.spool.crash.explore import Explorer, digest_of
from tests.spool.crash.laws import Broken, Promises, sequence_of
from tests.spool.crash.life import Life, Setup

from holdfast.spool import Corrupt, Refused, Spool
from holdfast.spool.names import SPOOL

_MARK = re.compile(rb'"durable":(\d+),"crc32c"')
LOUD = "a damaged middle is told and never passed over"


class Rot(Explorer):
    """Damages what a history has left, every record in turn."""

    def __init__(self, setup: Setup, every: int) -> None:
        super().__init__(setup, 1)
        self.every = every
        """Of so many bytes one gets one of its bits flipped."""

    def damaged(self, word: str) -> None:
        life = self.lived(word)
        life.close()
        truth = life.promises
        for number, (name, raw) in enumerate(content := life.disk.content()):
            if not name.endswith(SPOOL):
                continue
            for at, end, bad in _damages(raw, self.every):
                changed = (*content[:number], (name, bad), *content[number + 1 :])
                self._judge(changed, truth, sequence_of(raw[at:end]))

    def _judge(self, content: Content, truth: Promises, hurt: int) -> None:
        if not self.is_new("damage", digest_of(content), repr(truth.key()).encode()):
            return
        life = Life(self.setup, SimulatedDisk(content), truth.copied())
        spool = life.opened()
        if isinstance(spool, Refused):
            raise Broken("it opens", str(spool))
        lines, is_told = _replayed(spool, truth.ack_told)
        known = _mark(content, truth)
        for wanted, line in enumerate(lines, truth.ack_told + 1):
            if truth.lines.get(wanted) != line or wanted >= hurt > truth.ack_told:
                raise Broken(LOUD, f"record {hurt} is damaged; where {wanted} should be, {line[-60:]!r} was replayed")
        if truth.ack_told < hurt <= known and not is_told:
            raise Broken(LOUD, f"record {hurt} is damaged, {known} was durable, nobody was told")
        if spool.damage and not isinstance(spool.emit("BLOCK_START", {}), Refused):
            raise Broken(LOUD, "a damaged session takes records")


def _replayed(spool: Spool, receiver_has: int) -> tuple[list[bytes], bool]:
    """As a sender does it: agree with the receiver, then replay. True where that was told to be impossible."""
    found: list[bytes] = []
    after = spool.agree(receiver_has)
    if isinstance(after, Refused):
        return found, True
    try:
        found.extend(spool.replay(after))
    except Corrupt:
        return found, True
    return found, False


def _mark(content: Content, truth: Promises) -> int:
    """What every reader of these bytes can know to have been durable: the ack, and the marks of sound records."""
    sound = set(truth.lines.values())
    marks = [truth.ack_stored]
    for name, raw in content:
        if name.endswith(SPOOL):
            lines = [line for line in raw.split(b"\n") if line in sound]
            marks += [int(found[1]) for line in lines if (found := _MARK.search(line))]
            named = re.search(r"@(\d+)", name)
            marks.append(int(named[1]) - 1 if named else 0)
    return max(marks)


def _damages(raw: bytes, every: int) -> Iterator[tuple[int, int, bytes]]:
    """Where the hurt line is, and the file with it hurt."""
    start = 0
    while (end := raw.find(b"\n", start) + 1) > 0:
        line = raw[start:end]
        yield start, end, raw[:start] + raw[end:]
        yield start, end, raw[:start] + bytes(len(line)) + raw[end:]
        yield start, end, raw[:start] + line[: len(line) // 2] + raw[end:]
        for at in range(start, end, every):
            flipped = raw[at] ^ (1 << (at % 8))
            yield start, end, raw[:at] + bytes([flipped]) + raw[at + 1 :]
        start = end
