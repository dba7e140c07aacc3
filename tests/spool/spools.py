"""Spools for tests: driven step by step, on a real folder, with a clock that stands still and a disk that can fail."""

from __future__ import annotations

import errno
import json
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.spool import Refused, Spool, SpoolPolicy, Ticket
from holdfast.spool.files.disk import Disk, Handle, RealDisk
from holdfast.spool.files.names import SessionPaths
from holdfast.spool.files.session_markers import Adoption
from holdfast.spool.foreign.adoption import adopt, fingerprint

CHANNEL, SESSION = "classic-1", "PS-20260213-classic-1-0001"
NOW_MS = 1_771_000_000_123
layouts = pytest.mark.parametrize(
    "segment_bytes", [None, 1_000, 1 << 16], ids=["plain", "tiny-segments", "one-segment"]
)
"""The same meaning on every layout: one plain file, segments of three records, one preallocated segment."""


class ManualClock:
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


def fixed_bytes(length: int) -> bytes:
    """The same bytes every time."""
    return bytes(range(length))


def open_spool(root: Path, session: str = SESSION, **options: Any) -> Spool:
    """A spool without threads: it does what `step` says."""
    settings: dict[str, Any] = {"threads": False, "clock": ManualClock(), "random_bytes": fixed_bytes, **options}
    spool = Spool.open(CHANNEL, session, root=root, **settings)
    assert isinstance(spool, Spool), spool
    return spool


def emit_spooled(spool: Spool, count: int, payload_type: str = "BLOCK_START", **payload: object) -> list[Ticket]:
    """So many records, accepted and spooled."""
    tickets = []
    for number in range(count):
        ticket = spool.emit(payload_type, {"block_id": f"b-{number}", **payload})
        assert isinstance(ticket, Ticket), ticket
        tickets.append(ticket)
    while spool.writer.step():
        pass
    spool.step()
    assert all(ticket.is_durable for ticket in tickets)
    return tickets


def store_ack(spool: Spool, sequence: int) -> None:
    """An ack, stored."""
    ticket = spool.ack(sequence)
    assert isinstance(ticket, Ticket), ticket
    spool.step()
    assert ticket.is_durable


def check_refused(answer: object, name: str) -> Refused:
    assert isinstance(answer, Refused), answer
    assert answer.name == name, answer
    return answer


def sequences(lines: Any) -> list[int]:
    return [int(json.loads(line)["sequence"]) for line in lines]


def replay_sequences(spool: Spool, after: int = 0) -> list[int]:
    return sequences(spool.replay(after))


def channel_folder(root: Path) -> Path:
    return root / CHANNEL


def spool_files(root: Path, session: str = SESSION) -> list[Path]:
    """The session's record files, oldest first."""
    plain = f"{session}.spool.jsonl"
    every = channel_folder(root).glob("*.spool.jsonl")
    found = [path for path in every if path.name == plain or path.name.startswith(f"{session}@")]
    return sorted(found, key=lambda path: ("@" in path.name, path.name))


def stored_bytes(root: Path, session: str = SESSION) -> bytes:
    """All records as they are in the files, without padding."""
    return b"".join(path.read_bytes().rstrip(b"\0") for path in spool_files(root, session))


def v01_line(sequence: int, session: str = SESSION, *, text_number: bool = False) -> bytes:
    """A record as an existing sender writes it."""
    record = {
        "schema_version": 1,
        "channel_id": CHANNEL,
        "playout_session_id": session,
        "sequence": str(sequence) if text_number else sequence,
        "event_uuid": f"0000-{sequence}",
        "emitted_utc": "2026-02-13T10:00:00Z",
        "payload_type": "BLOCK_START",
        "payload": {"block_id": f"b-{sequence}", "swap_tick": sequence},
    }
    return json.dumps(record).encode() + b"\n"


def adopt_session(root: Path, session: str = SESSION) -> None:
    """An operator has adopted the session of another program."""
    paths = SessionPaths(channel_folder(root), CHANNEL, session)
    adoption = adopt(paths, fingerprint(paths.plain), NOW_MS)
    assert isinstance(adoption, Adoption), adoption


class Fault(NamedTuple):
    """The n-th call of a verb fails, from then on for so many calls; the file's name must contain `where`."""

    verb: str
    call: int = 1
    times: int = 1
    code: int = errno.EIO
    where: str = ""


class FaultyDisk(RealDisk):
    """A real disk that notes what is asked of it and sometimes says no."""

    def __init__(self, *faults: Fault) -> None:
        self.faults = list(faults)
        self.calls: list[tuple[str, str]] = []
        self._names: dict[int, str] = {}
        self.gate: threading.Event | None = None
        """While it is not set, `sync` hangs."""
        self.is_hanging = threading.Event()
        self.free_left: int | None = None

    def _note(self, verb: str, name: str) -> None:
        self.calls.append((verb, name))
        for index, fault in enumerate(self.faults):
            if fault.verb == verb and fault.where in name:
                if fault.call > 1:
                    self.faults[index] = fault._replace(call=fault.call - 1)
                    continue
                left = fault._replace(times=fault.times - 1)
                self.faults[index : index + 1] = [left] if left.times else []
                raise OSError(fault.code, "the disk says no", name)

    def free_bytes(self, folder: Path) -> int:
        return super().free_bytes(folder) if self.free_left is None else self.free_left

    def create(self, path: Path) -> Handle:
        self._note("create", path.name)
        return self._named(super().create(path), path)

    def open(self, path: Path, *, write: bool = False) -> Handle:
        return self._named(super().open(path, write=write), path)

    def _named(self, handle: Handle, path: Path) -> Handle:
        self._names[handle] = path.name
        return handle

    def write(self, handle: Handle, offset: int, data: bytes) -> None:
        self._note("write", self._names[handle])
        super().write(handle, offset, data)

    def preallocate(self, handle: Handle, size: int) -> None:
        self._note("preallocate", self._names[handle])
        super().preallocate(handle, size)

    def truncate(self, handle: Handle, size: int) -> None:
        self._note("truncate", self._names[handle])
        super().truncate(handle, size)

    def sync(self, handle: Handle) -> None:
        self._note("sync", self._names[handle])
        if self.gate is not None:
            self.is_hanging.set()
            self.gate.wait()
        super().sync(handle)

    def rename(self, old: Path, new: Path) -> None:
        self._note("rename", new.name)
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self._note("unlink", path.name)
        super().unlink(path)

    def sync_folder(self, path: Path) -> None:
        self._note("sync_folder", path.name)
        super().sync_folder(path)


class UnsyncedDisk(RealDisk):
    """A real disk that does not wait for the medium: for tests that open hundreds of spools and pull no plug."""

    def sync(self, handle: Handle) -> None:
        return

    def sync_folder(self, path: Path) -> None:
        return


def is_a_disk(disk: FaultyDisk) -> Disk:
    """Checked by the type checker: the test's disk has all the verbs."""
    return disk


def small_policy(**settings: int) -> SpoolPolicy:
    """A policy with a small cap and a small reserve."""
    return SpoolPolicy(**{"channel_bytes_max": 20_000, "reserve_bytes": 2_000, **settings})
