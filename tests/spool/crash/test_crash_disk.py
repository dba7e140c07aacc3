"""The simulated disk leaves what a real one may leave: no less, and nothing that a sync has made certain."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.spool.crash.crash_contents import crash_contents
from tests.spool.crash.simulated_disk import ROOT, Content, Fault, SimulatedDisk

FOLDER = ROOT / "c"


def made(content: Content = ()) -> SimulatedDisk:
    return SimulatedDisk(content)


def left(disk: SimulatedDisk, tears: int = 1) -> set[Content]:
    return set(crash_contents(disk, tears))


def path(name: str) -> Path:
    return FOLDER / name


def test_a_file_that_is_synced_by_content_may_still_have_no_name() -> None:
    disk = made()
    handle = disk.create(path("a"))
    disk.write(handle, 0, b"12")
    disk.sync(handle)
    assert left(disk) == {(), (("a", b"12"),)}
    disk.sync_folder(FOLDER)
    assert left(disk) == {(("a", b"12"),)}


def test_a_named_file_may_lose_any_part_of_what_is_not_synced() -> None:
    disk = made((("a", b"old"),))
    disk.write(disk.open(path("a")), 3, b"wxyz")
    found = {content[0][1] for content in left(disk, tears=10)}
    assert {b"old", b"oldw", b"oldwxy", b"oldwxyz", b"oldw\0\0\0", b"old\0xyz", b"oldw\0yz"} <= found
    assert all(raw.startswith(b"old") for raw in found)


def test_what_is_written_over_is_old_or_new_and_never_zeros() -> None:
    disk = made((("a", b"1234"),))
    disk.write(disk.open(path("a")), 0, b"abcd")
    found = {content[0][1] for content in left(disk, tears=10)}
    assert all(byte in b"1234abcd" for raw in found for byte in raw)
    assert {b"1234", b"a234", b"123d", b"abcd"} <= found


def test_writes_that_are_not_synced_come_in_any_order() -> None:
    disk = made((("a", b""),))
    handle = disk.open(path("a"))
    disk.write(handle, 0, b"11")
    disk.write(handle, 2, b"22")
    assert {b"", b"11", b"1122", b"\0\x0022"} <= {content[0][1] for content in left(disk)}


def test_a_rename_is_done_or_not_and_each_change_of_names_stands_alone() -> None:
    disk = made((("a", b"new"), ("b", b"old")))
    disk.rename(path("a"), path("b"))
    assert left(disk) == {(("a", b"new"), ("b", b"old")), (("b", b"new"),)}
    disk.close(disk.create(path("c")))
    assert (("a", b"new"), ("b", b"old"), ("c", b"")) in left(disk)
    disk.sync_folder(FOLDER)
    assert left(disk) == {(("b", b"new"), ("c", b""))}


def test_after_a_failed_sync_a_second_one_returns_and_means_nothing() -> None:
    disk = made((("a", b""),))
    handle = disk.open(path("a"))
    disk.write(handle, 0, b"1")
    disk.faults = (Fault(disk.calls + 1),)
    with pytest.raises(OSError, match=f"Errno {errno.EIO}"):
        disk.sync(handle)
    disk.sync(handle)
    assert disk.read(handle, 0, 9) == b"1"
    assert left(disk) == {(("a", b""),), (("a", b"1"),)}
    disk.write(handle, 0, b"1")
    disk.sync(handle)
    assert left(disk) == {(("a", b"1"),)}


def test_a_dead_process_takes_its_handles_and_locks_and_nothing_else() -> None:
    disk = made((("a", b""),))
    assert disk.lock(path("l")) is not None
    assert disk.lock(path("l")) is None
    disk.write(disk.open(path("a")), 0, b"1")
    disk.kill()
    assert disk.lock(path("l")) is not None
    lock = ("l", b"")  # its name stays, whatever happens
    assert disk.content() == (("a", b"1"), lock)
    assert left(disk.copy()) == left(disk) == {(("a", b""), lock), (("a", b"1"), lock)}


def test_a_full_medium_says_so_and_gives_room_back_with_the_name() -> None:
    disk = SimulatedDisk((("a", b"12345"),), capacity=8)
    handle = disk.create(path("b"))
    with pytest.raises(OSError, match=f"Errno {errno.ENOSPC}"):
        disk.write(handle, 0, b"1234")
    disk.unlink(path("a"))
    disk.write(handle, 0, b"1234")
    assert disk.free_bytes(FOLDER) == 4


def test_no_crash_state_is_left_out_in_silence() -> None:
    disk = made()
    for number in range(9):
        disk.close(disk.create(path(str(number))))
    with pytest.raises(AssertionError, match="9 changes are uncertain at once"):
        left(disk)
