"""Small files that exist whole or not at all: ack, final, released, quarantine.

Always in this order: temp, sync, rename, sync of the folder.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.core.refusal import Unavailable
from holdfast.core.values import U64_MAX
from holdfast.spool.disk import Disk
from holdfast.spool.names import Place, temp_of
from holdfast.spool.record import utc

_WHOLE_BYTES_MAX = 1 << 16


def replace(disk: Disk, path: Path, raw: bytes) -> None:
    """The file's new content, durable when this returns; after a crash it is the old content or the new one."""
    temp = temp_of(path)
    remove(disk, temp)
    handle = disk.create(temp)
    try:
        disk.write(handle, 0, raw)
        disk.sync(handle)
    finally:
        disk.close(handle)
    disk.rename(temp, path)
    disk.sync_folder(path.parent)


def remove(disk: Disk, path: Path) -> bool:
    """Take a name away; False where it was not there. Durable with the folder's next sync."""
    try:
        disk.unlink(path)
    except FileNotFoundError:
        return False
    return True


def content(disk: Disk, path: Path) -> bytes | None:
    """What a small file holds; None where there is none."""
    try:
        handle = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        return disk.read(handle, 0, _WHOLE_BYTES_MAX)
    finally:
        disk.close(handle)


def unavailable(fault: OSError, rule: str = "SP-002") -> Unavailable:
    """The disk said no: in one sentence, with what to look at."""
    where = f": {fault.filename}" if fault.filename else ""
    return Unavailable(rule, f"{fault.strerror or fault}{where}", "check disk, space and permissions")


# ------------------------------------------------------------------------------------------------ key=value lines


def lines_of(now_ms: int, **values: object) -> bytes:
    """`key=value` lines, and the time behind them."""
    said = "".join(f"{key}={value}\n" for key, value in values.items())
    return f"{said}updated_utc={utc(now_ms // 1_000)}.{now_ms % 1_000:03d}Z\n".encode()


def value_of(raw: bytes | None, key: str) -> str | None:
    """The value of a key in such lines; None where it is not there once and in order."""
    if raw is None:
        return None
    try:
        pairs = [line.partition("=") for line in raw.decode("ascii").splitlines()]
    except UnicodeDecodeError:
        return None
    found = [value for name, is_pair, value in pairs if is_pair and name == key]
    return found[0].strip() if len(found) == 1 else None


def number_of(raw: bytes | None, key: str) -> int | None:
    """An unsigned 64-bit number under this key."""
    text = value_of(raw, key)
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 20 or int(text) > U64_MAX:
        return None
    return int(text)


def write_ack(disk: Disk, place: Place, sequence: int, now_ms: int) -> None:
    """SP-ACK-001: what the receiver has, durable when this returns."""
    replace(disk, place.ack, lines_of(now_ms, acked_sequence=sequence))


def read_ack(disk: Disk, place: Place) -> int:
    """The stored ack; one that cannot be read counts as 0 (SP-ACK-001): then more is sent again, never less."""
    return number_of(content(disk, place.ack), "acked_sequence") or 0


class Final(msgspec.Struct, frozen=True, gc=False):
    """That a session was finished, and with which record."""

    sequence: int
    reason: str


def write_final(disk: Disk, place: Place, final: Final, now_ms: int) -> None:
    """SP-RET-001: remember that nothing comes after this sequence; compaction does not touch it."""
    replace(disk, place.final, lines_of(now_ms, final_sequence=final.sequence, reason=final.reason))


def read_final(disk: Disk, place: Place) -> Final | None:
    raw = content(disk, place.final)
    sequence = number_of(raw, "final_sequence")
    return None if sequence is None else Final(sequence, value_of(raw, "reason") or "closed")


def write_released(disk: Disk, place: Place, ranges: list[tuple[int, int]], now_ms: int) -> None:
    """Holes that an operator allows replay to pass over."""
    text = ",".join(f"{first}-{last}" for first, last in ranges)
    replace(disk, place.released, lines_of(now_ms, released=text))


def read_released(disk: Disk, place: Place) -> list[tuple[int, int]]:
    """What may be passed over; a file that cannot be read releases nothing."""
    text = value_of(content(disk, place.released), "released") or ""
    found = [part.partition("-") for part in text.split(",") if part]
    if not all(first.isdigit() and last.isdigit() for first, _, last in found):
        return []
    return [(int(first), int(last)) for first, _, last in found]
