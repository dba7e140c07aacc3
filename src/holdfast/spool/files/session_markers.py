"""What small files say about a session: its ack, that it is final, which holes an operator has released or adopted.

Each holds `key=value` lines and the time when it was written. A marker that exists and cannot be read counts as 0 for
replay; for numbering it is unknown how far the session went (SP-LOSS-001).
"""

from __future__ import annotations

import msgspec

from holdfast.core.base.values import U64_MAX
from holdfast.spool.files.atomic_files import read_small_file, replace_file
from holdfast.spool.files.disk import Disk
from holdfast.spool.files.names import SessionPaths
from holdfast.spool.files.record import utc


def key_value_lines(now_ms: int, **values: object) -> bytes:
    """`key=value` lines, and the time at the end."""
    lines = "".join(f"{key}={value}\n" for key, value in values.items())
    return f"{lines}updated_utc={utc(now_ms // 1_000)}.{now_ms % 1_000:03d}Z\n".encode()


def value_of(raw: bytes | None, key: str) -> str | None:
    """The value of a key; None where it does not occur exactly once."""
    if raw is None:
        return None
    try:
        pairs = [line.partition("=") for line in raw.decode("ascii").splitlines()]
    except UnicodeDecodeError:
        return None
    values = [value for name, is_pair, value in pairs if is_pair and name == key]
    return values[0].strip() if len(values) == 1 else None


def number_of(raw: bytes | None, key: str) -> int | None:
    """An unsigned 64-bit number under this key."""
    text = value_of(raw, key)
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 20 or int(text) > U64_MAX:
        return None
    return int(text)


def write_ack(disk: Disk, paths: SessionPaths, sequence: int, now_ms: int) -> None:
    """SP-ACK-001: the last record that the receiver has, durable when this returns."""
    replace_file(disk, paths.ack, key_value_lines(now_ms, acked_sequence=sequence))


def read_ack(disk: Disk, paths: SessionPaths) -> int:
    """The stored ack; one that cannot be read counts as 0 (SP-ACK-001): more is sent again, never less."""
    return number_of(read_small_file(disk, paths.ack), "acked_sequence") or 0


class SessionFinal(msgspec.Struct, frozen=True, gc=False):
    """A session is finished: its last record, and why."""

    sequence: int
    reason: str
    is_delivered: bool = False
    """The receiver has all of it and its files are being deleted: missing records are no loss."""


def write_final(disk: Disk, paths: SessionPaths, final: SessionFinal, now_ms: int) -> None:
    """SP-RET-001: record that nothing comes after this sequence. Compaction does not touch it."""
    delivered = {"delivered": "yes"} if final.is_delivered else {}
    raw = key_value_lines(now_ms, final_sequence=final.sequence, reason=final.reason, **delivered)
    replace_file(disk, paths.final, raw)


def read_final(disk: Disk, paths: SessionPaths) -> SessionFinal | None:
    return _final_of(read_small_file(disk, paths.final))


def _final_of(raw: bytes | None) -> SessionFinal | None:
    sequence = number_of(raw, "final_sequence")
    if sequence is None:
        return None
    return SessionFinal(sequence, value_of(raw, "reason") or "closed", value_of(raw, "delivered") == "yes")


class Adoption(msgspec.Struct, frozen=True, gc=False):
    """Another program's session that an operator has made ours (SP-OWN-001): how far it went by then."""

    sequence: int
    size: int


def write_adopted(disk: Disk, paths: SessionPaths, adoption: Adoption, now_ms: int) -> None:
    raw = key_value_lines(now_ms, adopted_sequence=adoption.sequence, adopted_bytes=adoption.size)
    replace_file(disk, paths.adopted, raw)


def read_adopted(disk: Disk, paths: SessionPaths) -> Adoption | None:
    """None where it was not adopted; one that cannot be read adopts nothing."""
    raw = read_small_file(disk, paths.adopted)
    sequence, size = number_of(raw, "adopted_sequence"), number_of(raw, "adopted_bytes")
    return None if sequence is None or size is None else Adoption(sequence, size)


def write_released(disk: Disk, paths: SessionPaths, ranges: list[tuple[int, int]], now_ms: int) -> None:
    """Holes that an operator allows replay to skip."""
    text = ",".join(f"{first}-{last}" for first, last in ranges)
    replace_file(disk, paths.released, key_value_lines(now_ms, released=text))


def read_released(disk: Disk, paths: SessionPaths) -> list[tuple[int, int]]:
    """The holes that may be skipped; a file that cannot be read releases none."""
    text = value_of(read_small_file(disk, paths.released), "released") or ""
    ranges = [part.partition("-") for part in text.split(",") if part]
    if not all(first.isdigit() and last.isdigit() for first, _, last in ranges):
        return []
    return [(int(first), int(last)) for first, _, last in ranges]


# ------------------------------------------------------------------------------------------------ together


class Markers(msgspec.Struct, frozen=True, gc=False):
    """What the markers of a session say together."""

    acked: int = 0
    final: SessionFinal | None = None
    released: tuple[tuple[int, int], ...] = ()
    unreadable: tuple[str, ...] = ()
    """Names of markers that exist and cannot be read: how far the session went is unknown."""

    @property
    def highest(self) -> int:
        """Every sequence up to here was used (SP-LOSS-001)."""
        final = self.final.sequence if self.final is not None else 0
        return max([self.acked, final, *(last for _, last in self.released)])

    def without_unreadable(self) -> Markers:
        """Another program may be writing its markers in place: for a moment they are empty."""
        return Markers(self.acked, self.final, self.released)


def read_markers(disk: Disk, paths: SessionPaths) -> Markers:
    ack, final = read_small_file(disk, paths.ack), read_small_file(disk, paths.final)
    acked = number_of(ack, "acked_sequence")
    unreadable = [paths.ack.name] if ack is not None and acked is None else []
    if final is not None and _final_of(final) is None:
        unreadable.append(paths.final.name)
    return Markers(acked or 0, _final_of(final), tuple(read_released(disk, paths)), tuple(unreadable))
