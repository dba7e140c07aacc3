"""Damage that no crash makes: flipped bits, lost, zeroed and doubled lines; it is told, and never passed over."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from tests.spool.crash import invariants
from tests.spool.crash.explore import Explorer, digest_of
from tests.spool.crash.invariants import InvariantBroken, Promises
from tests.spool.crash.simulated_disk import Content, SimulatedDisk
from tests.spool.crash.spool_run import Setup, SpoolRun

from holdfast.spool import Corrupt, Refused, Spool, Ticket
from holdfast.spool.files.names import ACK, SPOOL

_DURABLE = re.compile(rb'"durable":(\d+),"crc32c"')


class Corruption(Explorer):
    """Damages what a history has left, and holds what is opened then to what was promised."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup, 1)
        self.told = 0
        """How often the reader was told of a hole."""

    def content_after(self, word: str) -> tuple[Content, Promises]:
        life = self.run_history(word)
        life.close()
        return life.disk.content(), life.promises

    def damaged(self, word: str, every: int) -> None:
        """Every record in turn: lost, zeroed, cut; and of so many bytes one with one of its bits flipped."""
        content, truth = self.content_after(word)
        for name, raw in content:
            if name.endswith(SPOOL):
                for bad in _damages(raw, every):
                    self._judge(_changed(content, name, bad), truth)

    def flipped(self, word: str, sequence: int) -> None:
        """Every single bit of one record."""
        content, truth = self.content_after(word)
        line = truth.lines[sequence]
        name, raw = next((name, raw) for name, raw in content if line in raw)
        begin = raw.index(line)
        for at in range(begin, begin + len(line) + 1):
            for bit in range(8):
                bad = raw[:at] + bytes([raw[at] ^ (1 << bit)]) + raw[at + 1 :]
                self._judge(_changed(content, name, bad), truth)

    def damage_randomly(self, words: tuple[str, ...], count: int) -> None:
        """`count` spools with one or two random damages, each different from all others."""
        dice, left = random.Random(20260213), [self.content_after(word) for word in words]
        while len(self.states) < count:
            content, truth = dice.choice(left)
            files = [name for name, raw in content if name.endswith(SPOOL) and raw]
            for _ in range(dice.choice([1, 1, 2])):
                name = dice.choice(files)
                content = _changed(content, name, _random_damage(dict(content)[name], dice))
            if dice.random() < 0.2:
                content = tuple((name, raw) for name, raw in content if not name.endswith(ACK))
            self._judge(content, truth)

    # -------------------------------------------------------------------------------------------- the judge

    def _judge(self, content: Content, truth: Promises) -> None:
        """It opens; every record it gives was written so; bytes known durable that are hurt are told."""
        digest = digest_of(content)
        if not self.is_new("damage", digest, repr(truth.key()).encode()):
            return
        self.checks += 1
        life = SpoolRun(self.setup, SimulatedDisk(content), truth.copy())
        spool = life.open_spool()
        if isinstance(spool, Refused):
            raise InvariantBroken(invariants.OPENS, str(spool))
        damage = spool.damage
        if damage and _records(life.disk.content()) != _records(content):
            raise InvariantBroken(invariants.DAMAGE_REPORTED, "something was moved in a damaged session")
        if not damage:
            invariants.check_kept_or_quarantined(content, dict(life.disk.content()))
        lines, is_told = _replayed(spool, truth.ack_received)
        self.told += is_told
        self._check(content, truth, lines, is_told)
        if not is_told and truth.ack_received + len(lines) < spool.spooled_sequence:
            raise InvariantBroken(
                invariants.DAMAGE_REPORTED,
                f"{spool.spooled_sequence} should be spooled, and its loss was not reported",
            )
        answer = spool.emit("BLOCK_START", {})
        if damage and not isinstance(answer, Refused):
            raise InvariantBroken(invariants.DAMAGE_REPORTED, "a damaged session takes records")
        if isinstance(answer, Ticket) and answer.sequence <= _ack(content, truth):
            raise InvariantBroken(
                invariants.ONCE, f"{answer.sequence} is given out again, {truth.ack_stored} was acked"
            )
        self.judged.add(digest)

    def _check(self, content: Content, truth: Promises, lines: list[bytes], is_told: bool) -> None:
        whole = {line for _, raw in _records(content) for line in raw.split(b"\n")}
        above = (number for number in sorted(truth.lines) if number > truth.ack_received)
        hurt = next((number for number in above if truth.lines[number] not in whole), truth.spooled + 1)
        known = _durable_until(content, truth)
        for wanted, line in enumerate(lines, truth.ack_received + 1):
            if truth.lines.get(wanted) != line or wanted >= hurt:
                says = f"record {hurt} is damaged; where {wanted} should be, {line[-60:]!r} was replayed"
                raise InvariantBroken(invariants.DAMAGE_REPORTED, says)
        if hurt <= min(known, truth.spooled) and not is_told:
            raise InvariantBroken(
                invariants.DAMAGE_REPORTED, f"record {hurt} is damaged, {known} was durable, and it was not reported"
            )


def _records(content: Content) -> Content:
    return tuple((name, raw) for name, raw in content if name.endswith(SPOOL))


def _changed(content: Content, name: str, bad: bytes) -> Content:
    return tuple((one, bad if one == name else raw) for one, raw in content)


def _replayed(spool: Spool, receiver_has: int) -> tuple[list[bytes], bool]:
    """As a sender does it: agree with the receiver, then replay. True where that was told to be impossible."""
    found: list[bytes] = []
    after = spool.reconcile_ack(receiver_has)
    if isinstance(after, Refused):
        return found, True
    try:
        found.extend(spool.replay(after))
    except Corrupt:
        return found, True
    return found, False


def _ack(content: Content, truth: Promises) -> int:
    """The stored ack; 0 where its file is lost."""
    return truth.ack_stored if any(name.endswith(ACK) for name, _ in content) else 0


def _durable_until(content: Content, truth: Promises) -> int:
    """What every reader of these bytes can know to have been durable: the ack, and the marks of sound records."""
    sound = set(truth.lines.values())
    marks = [_ack(content, truth)]
    for name, raw in _records(content):
        lines = [line for line in raw.split(b"\n") if line in sound]
        marks += [int(found[1]) for line in lines if (found := _DURABLE.search(line))]
        named = re.search(r"@(\d+)", name)
        marks.append(int(named[1]) - 1 if named else 0)
    return max(marks)


# ------------------------------------------------------------------------------------------------ accidents


def _damages(raw: bytes, every: int) -> Iterator[bytes]:
    """The file with one of its lines hurt, in each of these ways."""
    start = 0
    while (end := raw.find(b"\n", start) + 1) > 0:
        line = raw[start:end]
        yield raw[:start] + raw[end:]
        yield raw[:start] + bytes(len(line)) + raw[end:]
        yield raw[:start] + line[: len(line) // 2] + raw[end:]
        yield raw[:end] + line + raw[end:]
        for at in range(start, end, every):
            flipped = raw[at] ^ (1 << (at % 8))
            yield raw[:at] + bytes([flipped]) + raw[at + 1 :]
        start = end


def _random_damage(raw: bytes, dice: random.Random) -> bytes:
    """Cut off, zeroed, taken out, overwritten, one bit, doubled."""
    at = dice.randrange(len(raw) or 1)
    length = dice.choice([1, 5, 300, 4_096])
    rest = raw[at + length :]
    ways = (
        lambda: raw[:at],
        lambda: raw[:at] + bytes(len(raw[at : at + length])) + rest,
        lambda: raw[:at] + rest,
        lambda: raw[:at] + dice.randbytes(length) + rest,
        lambda: raw[:at] + bytes([raw[at] ^ (1 << dice.randrange(8))]) + raw[at + 1 :] if raw else raw,
        lambda: raw[:at] + raw[max(0, at - length) : at] + raw[at:],
    )
    return dice.choice(ways)()
