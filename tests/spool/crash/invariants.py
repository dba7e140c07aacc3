"""What must hold after any crash: what was promised before it, compared with what a reopened spool says and does."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.spool.files.names import QUARANTINE, SPOOL

_NUMBER = re.compile(rb'"sequence":(\d+),')
_TOKEN = re.compile(rb'"payload":\{"n":(\d+)\}')
LAST_RECORD = b'"reason":"EVIDENCE_SPOOL_FULL"'


class Invariant(NamedTuple):
    """One sentence that must be true after any crash, and the rule that it holds."""

    rule: str
    says: str


SAME = Invariant("SP-001", "a record is the same bytes for ever")
EMITTED = Invariant("SP-001", "only what was emitted is there")
THERE = Invariant("SP-002", "what was spooled is there")
IN_ORDER = Invariant("SP-003", "records are in order, without gaps, each once")
ONCE = Invariant("SP-003", "no number is used twice")
OFFERED = Invariant("SP-005", "only what is spooled is offered")
ACK_RECEIVED = Invariant("SP-ACK-001", "an ack is never more than the receiver said")
REPLAYS = Invariant("SP-ACK-002", "a sound spool replays")
ACK_MONOTONIC = Invariant("SP-ACK-003", "an ack never goes back")
FINAL_STAYS = Invariant("SP-RET-001", "final stays final")
ONLY_FINAL = Invariant("SP-RET-001", "only a final session is final")
NEVER_HALF_GONE = Invariant("SP-RET-001", "what is let go of never looks unfinished")
RECLAIMED = Invariant("SP-RET-001", "what may go is let go of")
NO_LEFTOVERS = Invariant("SP-RET-002", "nothing that was half done is left")
KEPT = Invariant("SP-RET-002", "nothing is let go before its ack")
CAP = Invariant("SP-RET-003", "the cap holds")
RESERVED = Invariant("SP-RET-003", "the reserve is there")
OPENS = Invariant("SP-CRASH-001", "it opens")
CONTINUES = Invariant("SP-CRASH-001", "a reopened spool goes on")
LISTED = Invariant("SP-CRASH-001", "an older session that was not delivered is listed")
NO_DAMAGE = Invariant("SP-CRASH-002", "a crash is no damage")
TORN = Invariant("SP-CRASH-002", "a torn tail is quarantined")
DAMAGE_REPORTED = Invariant("SP-CRASH-002", "a damaged middle is told and never passed over")


class InvariantBroken(AssertionError):
    """A broken invariant: its rule, its text, and what was seen."""

    def __init__(self, invariant: Invariant, says: str) -> None:
        super().__init__(f"{invariant.rule}: {invariant.says}: {says}")
        self.invariant, self.says = invariant, says


class Promises:
    """What the spool has said so far, over all its lives. It only grows."""

    def __init__(self, written_twice: int = 0) -> None:
        self.spooled = 0
        """Reported as spooled, by a ticket or by the spool's own count."""
        self.confirmed = 0
        """Reported by a ticket: what was emitted last under this number is the one that counts."""
        self.lines: dict[int, bytes] = {}
        """Offered for sending."""
        self.tokens: dict[int, tuple[int, ...]] = {}
        """What was emitted under a sequence; more than one where a ticket failed and its number came again."""
        self.ack_received = 0
        self.ack_stored = 0
        self.final = ""
        """`asked`: it was to be closed as final; `said`: it was."""
        self.written_twice = written_twice
        """Bytes that a failing disk left in the folder besides those that count: by so much the cap may be exceeded."""
        self.openings = 0
        self.emitted = 0

    def copy(self) -> Promises:
        other = Promises()
        other.__dict__.update(self.__dict__)
        other.lines, other.tokens = dict(self.lines), dict(self.tokens)
        return other

    def key(self) -> tuple[object, ...]:
        """Two promises with one key ask the same of a disk."""
        lines = hash(tuple(self.lines.items()))
        said = (self.spooled, self.confirmed, self.ack_received, self.ack_stored, self.final)
        return *said, lines, hash(tuple(self.tokens.items()))

    @property
    def are_kept(self) -> bool:
        """Nothing is owed any more: the session is finished and the receiver has its last record."""
        return self.final == "said" and self.ack_stored >= self.spooled

    @property
    def highest(self) -> int:
        """No new record may have a number up to here."""
        return max(self.spooled, self.ack_stored, max(self.lines, default=0))


def sequence_of(line: bytes) -> int:
    found = _NUMBER.search(line)
    return int(found[1]) if found else -1


def check_offered(promises: Promises, first: int, lines: list[bytes]) -> None:
    """All that a spool would send now: in order, without gaps, exactly once, and as it was emitted."""
    if first - 1 > promises.ack_received:
        raise InvariantBroken(KEPT, f"records begin at {first}, acked is {promises.ack_received}")
    for wanted, line in enumerate(lines, first):
        sequence = sequence_of(line)
        if sequence != wanted:
            raise InvariantBroken(IN_ORDER, f"record {sequence} where {wanted} should be")
        _check_same(promises, sequence, line)
    last = first + len(lines) - 1
    if last < promises.spooled:
        raise InvariantBroken(THERE, f"record {promises.spooled} was spooled, the last one is {last}")


def _check_same(promises: Promises, sequence: int, line: bytes) -> None:
    known = promises.lines.get(sequence)
    if known is not None:
        if known != line:
            says = f"record {sequence} was offered as {known[-60:]!r}, is now {line[-60:]!r}"
            raise InvariantBroken(SAME, says)
        return
    found, tokens = _TOKEN.search(line), promises.tokens.get(sequence, ())
    if found is None:
        if LAST_RECORD not in line:
            raise InvariantBroken(EMITTED, f"record {sequence} is {line[-90:]!r}")
        return
    allowed = tokens[-1:] if sequence <= promises.confirmed else tokens
    if int(found[1]) not in allowed:
        raise InvariantBroken(EMITTED, f"record {sequence} holds {int(found[1])}, not {allowed}")


def check_acked(promises: Promises, acked_sequence: int) -> None:
    if acked_sequence < promises.ack_stored:
        raise InvariantBroken(ACK_MONOTONIC, f"{promises.ack_stored} was stored, {acked_sequence} is")
    if acked_sequence > promises.ack_received:
        raise InvariantBroken(ACK_RECEIVED, f"{promises.ack_received} was told, {acked_sequence} is stored")


def check_numbered(promises: Promises, sequence: int, expected: int) -> None:
    if sequence <= promises.highest:
        raise InvariantBroken(ONCE, f"{sequence} is given out again, {promises.highest} was used")
    if sequence != expected:
        raise InvariantBroken(IN_ORDER, f"{sequence} is given out, {expected} is next")


def check_finality(promises: Promises, is_finished: bool, last: bytes) -> None:
    if promises.final == "said" and not is_finished:
        raise InvariantBroken(FINAL_STAYS, "the session takes records again")
    if not promises.final and is_finished and b'"CHANNEL_TERMINATED"' not in last:
        raise InvariantBroken(ONLY_FINAL, "nobody has closed it as final")


def check_kept_or_quarantined(before: Iterable[tuple[str, bytes]], after: dict[str, bytes]) -> None:
    """Recovery leaves every record file as it was, up to a place from which on its bytes are in a quarantine file."""
    apart = [raw.rstrip(b"\0") for name, raw in after.items() if name.endswith(QUARANTINE)]
    for name, raw in before:
        if name.endswith(QUARANTINE) and after.get(name) != raw:
            raise InvariantBroken(TORN, f"{name} has changed")
        if not name.endswith(SPOOL):
            continue
        if name not in after:
            raise InvariantBroken(KEPT, f"{name} is gone")
        was, now = raw.rstrip(b"\0"), after[name].rstrip(b"\0")
        rest = was[len(now) :]
        if not was.startswith(now):
            raise InvariantBroken(TORN, f"{name} was changed in place")
        if rest and rest not in apart and rest.strip(b"\0"):
            raise InvariantBroken(TORN, f"{len(rest)} bytes of {name} are gone")


def check_below_cap(most_used: int, cap: int) -> None:
    if most_used > cap:
        raise InvariantBroken(CAP, f"{most_used} bytes were in the folder, the cap is {cap}")


def check_reserve(held: int, size: int) -> None:
    if held != size:
        raise InvariantBroken(RESERVED, f"it has {held} bytes, not {size}")
