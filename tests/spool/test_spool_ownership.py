"""SP-OWN-001: what another program may be writing is only read, whatever command of ours runs beside it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.spool.spools import (
    CHANNEL,
    NOW_MS,
    SESSION,
    adopt_session,
    channel_folder,
    check_refused,
    emit_spooled,
    open_spool,
    replay_sequences,
    sequences,
    stored_bytes,
)
from tests.spool.test_spool_cli import run_cli
from tests.spool.v01_writer import line_of

from holdfast.spool import Refused, Spool, Unavailable, channel
from holdfast.spool.files.disk import RealDisk
from holdfast.spool.files.names import SessionPaths
from holdfast.spool.files.ownership import SessionOwner
from holdfast.spool.foreign.adoption import adopt, fingerprint, writers_of

pytestmark = pytest.mark.rule("SP-OWN-001")
PROGRAM = Path(__file__).with_name("v01_writer.py")


def file_of(root: Path, session: str = SESSION) -> Path:
    return channel_folder(root) / f"{session}.spool.jsonl"


def lay_v01(root: Path, count: int, rest: bytes = b"", session: str = SESSION) -> bytes:
    channel_folder(root).mkdir(parents=True, exist_ok=True)
    raw = b"".join(line_of(CHANNEL, session, n) for n in range(1, count + 1)) + rest
    file_of(root, session).write_bytes(raw)
    return raw


@contextmanager
def running_writer(root: Path, session: str = SESSION) -> Iterator[list[int]]:
    """The program beside us; its last sequence is in the list when it has ended."""
    command = [sys.executable, str(PROGRAM), str(root), CHANNEL, session]
    last: list[int] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield last
        finally:
            process.stdin.close()
            last.append(int(process.stdout.readline()))


def everything(root: Path) -> list[tuple[str, int]]:
    """Names and identities of all files of the channel."""
    return sorted((path.name, path.stat().st_ino) for path in channel_folder(root).iterdir())


def test_beside_a_running_writer_no_command_of_ours_takes_anything_from_it(tmp_path: Path) -> None:
    with running_writer(tmp_path) as last:
        while not (channel_folder(tmp_path) / f"{SESSION}.ack").exists():
            pass
        file, before = file_of(tmp_path), everything(tmp_path)
        for _ in range(3):
            for words in (["repair"], ["repair", "--release"], ["compact"], ["seal", "--yes"]):
                assert "SP-OWN-001" in run_cli(*words, file, code=1)
            run_cli("adopt", "--watch-s", 0.05, file, code=1)
            run_cli("adopt", "--watch-s", 0, tmp_path, code=1)
            run_cli("list", tmp_path)
            run_cli("show", file)
            run_cli("replay", file)
            run_cli("tail", file)
            open_and_reclaim(tmp_path)
        assert "growing" in run_cli("verify", file, code=None)
        assert everything(tmp_path) == before
    assert file.read_bytes() == b"".join(line_of(CHANNEL, SESSION, n) for n in range(1, last[0] + 1))


def open_and_reclaim(root: Path) -> None:
    """What a program does that uses the spool beside it."""
    spool = open_spool(root)
    assert spool.is_foreign
    check_refused(spool.emit("BLOCK_START", {}), "SessionForeign")
    check_refused(spool.ack(1), "NoMarkerFolder")
    spool.compact()
    spool.step()
    spool.close()
    channel.reclaim(RealDisk(), channel_folder(root), NOW_MS, except_session="")


@pytest.mark.rule("SP-005")
def test_a_session_of_another_program_is_followed_and_its_ack_is_in_our_own_folder(tmp_path: Path) -> None:
    root, markers = tmp_path / "theirs", tmp_path / "ours"
    with running_writer(root) as last:
        spool = Spool.open(CHANNEL, SESSION, root=root, markers=markers)
        assert isinstance(spool, Spool)
        second = Spool.open(CHANNEL, SESSION, root=root, markers=markers)
        check_refused(second, "SessionLocked")
        seen = spool.spooled_sequence
        assert spool.writer.spooled.wait(seen + 20, 30)
        ticket = spool.ack(seen)
        assert not isinstance(ticket, Refused)
        assert ticket.wait(10)
    assert spool.writer.spooled.wait(last[0], 30)
    assert replay_sequences(spool) == list(range(1, last[0] + 1))
    spool.close()
    assert sorted(path.name for path in (markers / CHANNEL).iterdir()) == [f"{SESSION}.ack", f"{SESSION}.lock"]
    again = Spool.open(CHANNEL, SESSION, root=root, markers=markers, threads=False)
    assert isinstance(again, Spool)
    assert again.acked_sequence == seen
    again.close()
    assert not (channel_folder(root) / f"{SESSION}.lock").exists()


def test_a_followed_file_that_is_cut_or_replaced_or_has_a_bad_line_ends_the_following(tmp_path: Path) -> None:
    def cut(file: Path) -> None:
        os.truncate(file, 10)

    def replace(file: Path) -> None:
        copy = file.with_name("copy")
        copy.write_bytes(file.read_bytes())
        copy.rename(file)

    def spoil(file: Path) -> None:
        with file.open("ab") as more:
            more.write(b"no record\n")

    for number, change in enumerate((cut, replace, spoil)):
        root = tmp_path / str(number)
        lay_v01(root, 3)
        spool = open_spool(root)
        change(file_of(root))
        spool.step()
        with pytest.raises(Unavailable, match=r"cut or replaced|not record 4"):
            spool.writer.spooled.wait(4, 0)
        spool.close()


def test_a_torn_tail_of_another_program_stays_until_the_session_is_adopted(tmp_path: Path) -> None:
    raw = lay_v01(tmp_path, 3, b'{"schema_ver')
    spool = open_spool(tmp_path)
    assert replay_sequences(spool) == [1, 2, 3]
    spool.close()
    assert stored_bytes(tmp_path) == raw
    assert "adopt" in run_cli("verify", file_of(tmp_path), code=1)
    assert "foreign" in run_cli("list", tmp_path)
    assert "adopted" in run_cli("adopt", "--watch-s", 0.05, tmp_path)
    assert "no session of another program" in run_cli("adopt", tmp_path)
    assert "1 lines of a torn tail" in run_cli("repair", file_of(tmp_path))
    spool = open_spool(tmp_path)
    assert [ticket.sequence for ticket in emit_spooled(spool, 1)] == [4]
    spool.close()
    assert owner_of(tmp_path) is SessionOwner.ADOPTED


def owner_of(root: Path) -> SessionOwner:
    return channel.read_status(RealDisk(), SessionPaths(channel_folder(root), CHANNEL, SESSION)).owner


def test_a_command_that_is_advised_can_be_pasted(tmp_path: Path) -> None:
    """Names of other programs may have spaces."""
    lay_v01(tmp_path, 3, b'{"torn', session="PS 1")
    file = file_of(tmp_path, "PS 1")
    for verb in ("repair", "verify"):
        advised = " ".join(run_cli(verb, file, code=1).split("holdfast spool ")[-1].rstrip(") \n").split())
        assert shlex.split(advised) == ["adopt", str(file)]


def test_a_session_that_grows_or_is_open_for_writing_is_not_adopted(tmp_path: Path) -> None:
    lay_v01(tmp_path, 3)
    paths = SessionPaths(channel_folder(tmp_path), CHANNEL, SESSION)
    seen = fingerprint(paths.plain)
    with paths.plain.open("ab") as more:
        more.write(line_of(CHANNEL, SESSION, 4))
    check_refused(adopt(paths, seen, NOW_MS), "SessionGrowing")
    with running_writer(tmp_path, "PS-2"):
        assert writers_of(file_of(tmp_path, "PS-2"))
        assert not writers_of(paths.plain)
    assert owner_of(tmp_path) is SessionOwner.FOREIGN


def test_a_session_of_a_program_that_has_it_open_and_is_idle_is_not_adopted(tmp_path: Path) -> None:
    lay_v01(tmp_path, 3)
    paths = SessionPaths(channel_folder(tmp_path), CHANNEL, SESSION)
    idle = ["sh", "-c", f"exec 3>>{shlex.quote(str(paths.plain))}; echo ready; read end"]
    with subprocess.Popen(idle, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        refusal = check_refused(adopt(paths, fingerprint(paths.plain), NOW_MS), "SessionGrowing")
        assert f"process {process.pid} has it open for writing" in refusal.message
        process.stdin.close()
    assert not isinstance(adopt(paths, fingerprint(paths.plain), NOW_MS), Refused)


def test_a_session_whose_program_writes_on_after_it_was_adopted_is_its_programs_again(tmp_path: Path) -> None:
    lay_v01(tmp_path, 3)
    adopt_session(tmp_path)
    spool = open_spool(tmp_path)
    emit_spooled(spool, 1)
    spool.close()
    assert owner_of(tmp_path) is SessionOwner.ADOPTED
    with file_of(tmp_path).open("ab") as more:
        more.write(line_of(CHANNEL, SESSION, 4))
    raw = stored_bytes(tmp_path)
    spool = open_spool(tmp_path)
    assert spool.is_foreign
    spool.close()
    assert "SP-OWN-001" in run_cli("repair", file_of(tmp_path), code=1)
    assert stored_bytes(tmp_path) == raw


class Beside(RealDisk):
    """Another program writes to the file between two of our calls."""

    def __init__(self, verb: str, file: Path) -> None:
        self._verb, self._file = verb, file

    def _write_beside(self, verb: str, name: str) -> None:
        if verb == self._verb and name.endswith((".quarantine.tmp", ".spool.jsonl.tmp")):
            self._verb = ""
            with self._file.open("ab") as more:
                more.write(line_of(CHANNEL, SESSION, 99))

    def create(self, path: Path) -> Any:
        self._write_beside("create", path.name)
        return super().create(path)


def test_a_tail_that_grows_while_it_is_set_aside_is_not_cut(tmp_path: Path) -> None:
    lay_v01(tmp_path, 3, b'{"schema_ver')
    adopt_session(tmp_path)
    with pytest.raises(Unavailable, match="another program"):
        open_spool(tmp_path, disk=Beside("create", file_of(tmp_path)))
    assert stored_bytes(tmp_path).endswith(line_of(CHANNEL, SESSION, 99))


def test_a_file_that_grows_while_it_is_compacted_is_not_replaced_and_our_records_go_to_a_new_segment(
    tmp_path: Path,
) -> None:
    lay_v01(tmp_path, 5)
    adopt_session(tmp_path)
    spool = open_spool(tmp_path, disk=Beside("create", file_of(tmp_path)))
    spool.ack(3)
    spool.compact()
    spool.step()
    assert spool.metrics().compactions == 0
    emit_spooled(spool, 2)
    assert replay_sequences(spool, 3) == [4, 5, 6, 7]
    spool.close()
    assert line_of(CHANNEL, SESSION, 99) in file_of(tmp_path).read_bytes()


def test_two_programs_in_one_channel_do_not_disturb_each_other(tmp_path: Path) -> None:
    with running_writer(tmp_path) as last:
        ours = Spool.open(CHANNEL, "PS-ours", root=tmp_path)
        assert isinstance(ours, Spool)
        threads = [threading.Thread(target=lambda: [ours.emit("BLOCK_START", {"n": n}) for n in range(200)])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ours.emit("CHANNEL_TERMINATED", {})
        ours.writer.spooled.wait(201, 30)
        ours.ack(201)
        ours.close(final=True)
        channel.reclaim(RealDisk(), channel_folder(tmp_path), NOW_MS, except_session="")
    assert sequences(file_of(tmp_path).read_bytes().splitlines()) == list(range(1, last[0] + 1))
    assert not file_of(tmp_path, "PS-ours").exists()


@pytest.mark.rule("SP-CRASH-002", "EVD-007")
@pytest.mark.parametrize("bad", [b"b-\xff\xfe", b"b-\x01", b"b-\tx"])
def test_complete_lines_of_v01_that_are_not_strict_json_are_named_kept_and_sent(tmp_path: Path, bad: bytes) -> None:
    raw = lay_v01(tmp_path, 4)
    for number in (b"b-2", b"b-4"):
        raw = raw.replace(b'"' + number + b'"', b'"' + bad + b'"')
    file_of(tmp_path).write_bytes(raw)
    text = run_cli("verify", file_of(tmp_path))
    assert "2 complete lines are not strict JSON: record 2 at byte" in text
    assert "torn" not in text
    adopt_session(tmp_path)
    spool = open_spool(tmp_path)
    assert list(spool.replay(0)) == raw.splitlines()
    assert spool.metrics().quarantined_records == 0
    emit_spooled(spool, 1)
    spool.close()
    assert stored_bytes(tmp_path).startswith(raw)


@pytest.mark.rule("SP-CRASH-002")
@pytest.mark.parametrize("line", [b"no record", line_of(CHANNEL, SESSION, 4)[:40] + line_of(CHANNEL, SESSION, 5)[:-1]])
def test_a_complete_line_at_the_end_of_a_v01_file_is_damage_and_not_a_torn_tail(tmp_path: Path, line: bytes) -> None:
    """A torn line and the record behind it may be merged in it."""
    raw = lay_v01(tmp_path, 3, line + b"\n")
    adopt_session(tmp_path)
    text = run_cli("verify", file_of(tmp_path), code=1)
    assert "damaged" in text
    spool = open_spool(tmp_path)
    assert "record 4 is damaged" in spool.damage
    spool.close()
    assert stored_bytes(tmp_path) == raw
