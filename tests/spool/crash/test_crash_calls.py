"""A real process on a real disk: killed or failed at its system calls, and a disk that is really full."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.counts import FULL, counts
from tests.spool.crash import invariants
from tests.spool.crash.invariants import Promises
from tests.spool.crash.scripted import POLICY, promises_from
from tests.spool.spools import check_refused, emit_spooled, open_spool, replay_sequences, small_policy

from holdfast.spool import Refused, Spool, Ticket

HERE = Path(__file__).parents[3]
STRACE = shutil.which("strace")
WRITE_CALLS = ("pwrite64", "fdatasync", "fsync", "rename", "unlink", "ftruncate", "fallocate", "mkdir")
READ_CALLS = ("openat", "pread64", "newfstatat", "getdents64", "flock", "statfs")
SEGMENT_BYTES = (0, 700)
ROOMY = small_policy(channel_bytes_max=1 << 30, reserve_bytes=1 << 15)
needs_strace = pytest.mark.skipif(STRACE is None, reason="strace is missing: NO FAULTS ARE INJECTED, install it")


class Call(NamedTuple):
    """One system call of the script: the so-many-th of its name, counted from the start of the process."""

    name: str
    number: int
    makes_a_file: bool

    @property
    def is_a_change(self) -> bool:
        return self.makes_a_file or self.name in WRITE_CALLS


class ScriptRunner:
    """Where the script is played: with modules that are compiled beforehand, so that all runs make the same calls."""

    def __init__(self, folder: Path) -> None:
        self._environ = os.environ | {"PYTHONPYCACHEPREFIX": str(folder / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
        script = [sys.executable, "-c", "import tests.spool.crash.scripted"]
        subprocess.run(script, cwd=HERE, env=self._environ, check=True)
        self.calls = {segment_bytes: self._sound(folder, segment_bytes) for segment_bytes in SEGMENT_BYTES}

    def run(self, root: Path, segment_bytes: int, injection: str = "") -> subprocess.CompletedProcess[str]:
        """The script in a process of its own, whose system calls go wrong as `injection` says."""
        assert STRACE is not None
        # With the filter only the named calls stop at the tracer, but then strace delivers no signals.
        only = [] if "signal=" in injection else ["--seccomp-bpf"]
        traced = [STRACE, "-f", "-qq", *only, "-o", str(root.with_name(f"{root.name}.strace"))]
        traced += [
            "-e",
            f"trace={','.join(WRITE_CALLS + READ_CALLS)}",
            *(["-e", f"inject={injection}"] if injection else []),
        ]
        script = [sys.executable, "-B", "-m", "tests.spool.crash.scripted", str(root), str(segment_bytes)]
        return subprocess.run(
            [*traced, *script], cwd=HERE, env=self._environ, capture_output=True, text=True, timeout=240, check=False
        )

    def _sound(self, folder: Path, segment_bytes: int) -> list[Call]:
        """All calls of a run in which nothing fails, from the first one that concerns the spool."""
        root = folder / f"sound-{segment_bytes}" / "spool"
        root.parent.mkdir()
        run = self.run(root, segment_bytes)
        assert run.stdout.endswith("end\n"), run.stderr
        assert "unavailable" not in run.stdout
        check_promises(root, segment_bytes, promises_from(run.stdout))
        log = root.with_name(f"{root.name}.strace").read_text()
        found, numbers = list[Call](), Counter[str]()
        for name, rest in re.findall(r"^\d+\s+(\w+)\((.*)$", log, re.MULTILINE):
            numbers[name] += 1
            if found or name == "mkdir":
                found.append(Call(name, numbers[name], "O_CREAT" in rest))
        return found


def check_promises(root: Path, segment_bytes: int, promises: Promises) -> None:
    """Open it on the sound disk and hold it to what it has promised."""
    spool = open_spool(root, policy=POLICY, segment_bytes=segment_bytes or None)
    assert not spool.damage
    invariants.check_acked(promises, spool.acked_sequence)
    invariants.check_offered(promises, spool.first_available, list(spool.replay(spool.first_available - 1)))
    last = spool.spooled_sequence
    answer = spool.emit("BLOCK_START", {"n": 0})
    is_finished = isinstance(answer, Refused) and answer.name == "SessionFinished"
    invariants.check_finality(promises, is_finished, b"")
    if not is_finished:
        assert isinstance(answer, Ticket), answer
        invariants.check_numbered(promises, answer.sequence, max(last, spool.acked_sequence) + 1)
    spool.close()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> ScriptRunner:
    return ScriptRunner(tmp_path_factory.mktemp("stage"))


def chosen(calls: list[Call], few: int) -> list[Call]:
    """Every call of the script; on other days so many of them, evenly spread."""
    return calls if FULL else calls[:: max(1, len(calls) // few)]


@needs_strace
@pytest.mark.timeout(1_800)
@pytest.mark.rule("SP-002", "SP-CRASH-001", "SP-CRASH-002")
@pytest.mark.parametrize("segment_bytes", SEGMENT_BYTES, ids=["plain", "segments"])
def test_kill_minus_nine_at_a_system_call_breaks_no_promise(
    tmp_path: Path, segment_bytes: int, stage: ScriptRunner
) -> None:
    changes = [call for call in stage.calls[segment_bytes] if call.is_a_change]
    tried = chosen(changes, few=8)
    for call in tried:
        root = tmp_path / f"{call.name}-{call.number}"
        run = stage.run(root, segment_bytes, f"{call.name}:signal=KILL:when={call.number}")
        assert run.returncode == -signal.SIGKILL, (call, run.stderr)
        check_promises(root, segment_bytes, promises_from(run.stdout))
    print(f"killed at {len(tried)} of {len(changes)} system calls")
    assert len(tried) >= counts(8, 50)


CODES = {"pwrite64": ("EIO", "ENOSPC"), "fallocate": ("ENOSPC",), "mkdir": ("EIO", "ENOSPC")}
"""How a call may fail; all others with EIO."""


@needs_strace
@pytest.mark.timeout(1_800)
@pytest.mark.rule("SP-CRASH-003")
@pytest.mark.parametrize("segment_bytes", SEGMENT_BYTES, ids=["plain", "segments"])
def test_an_error_at_a_system_call_breaks_no_promise_and_is_not_the_end(
    tmp_path: Path, segment_bytes: int, stage: ScriptRunner
) -> None:
    calls = stage.calls[segment_bytes]
    every = [(call, code) for call in calls for code in _codes(call)]
    tried = every if FULL else every[:: max(1, len(every) // 12)]
    for call, code in tried:
        root = tmp_path / f"{call.name}-{call.number}-{code}"
        run = stage.run(root, segment_bytes, f"{call.name}:error={code}:when={call.number}")
        assert run.stdout.endswith("end\n"), (call, code, run.stdout, run.stderr)
        assert "Traceback" not in run.stderr
        check_promises(root, segment_bytes, promises_from(run.stdout))
    print(f"{len(tried)} of {len(every)} errors at {len(calls)} system calls")
    assert len(tried) >= counts(12, 150)


def _codes(call: Call) -> tuple[str, ...]:
    return ("EIO", "ENOSPC") if call.makes_a_file else CODES.get(call.name, ("EIO",))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "holdfast-test", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no small file system can be mounted here: THE FULL DISK IS NOT TESTED")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def occupied(file: Path) -> None:
    """Somebody else takes all the room there is."""
    with file.open("wb", buffering=0) as raw, suppress(OSError):
        while raw.write(bytes(4_096)):
            pass


def filled(spool: Spool, others: Path) -> int:
    """Emit until it is refused; how many were accepted. The disk is full before the spool has measured it again."""
    for number in count():
        answer = spool.emit("BLOCK_START", {"block_id": "b" * 2_000, "number": number})
        if isinstance(answer, Refused):
            check_refused(answer, "SpoolFull")
            return number
        if number == 40:
            occupied(others)
        while spool.writer.step():
            pass
        spool.step()
    raise AssertionError


@pytest.mark.rule("SP-RET-003")
@pytest.mark.parametrize("segment_bytes", [None, 1 << 15], ids=["plain", "segments"])
def test_a_really_full_disk_gets_its_last_record_and_goes_on_when_there_is_room(
    small_disk: Path, segment_bytes: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "holdfast.spool")
    others = small_disk / "others"
    spool = open_spool(small_disk / "spool", policy=ROOMY, segment_bytes=segment_bytes)
    accepted = filled(spool, others)
    assert accepted > 40
    assert spool.metrics().failures >= 1, "the disk was never full"
    spool.step()
    lines = list(spool.replay(0))
    assert b"EVIDENCE_SPOOL_FULL" in lines[-1]
    assert replay_sequences(spool) == list(range(1, len(lines) + 1))
    assert len(lines) == accepted + 1
    check_refused(spool.emit("BLOCK_START", {}), "SpoolFull")
    others.unlink()
    spool.step()
    emit_spooled(spool, 3)
    spool.close()
    again = open_spool(small_disk / "spool")
    assert replay_sequences(again) == list(range(1, len(lines) + 4))
    again.close()
