"""`holdfast spool`: what an operator sees and can do, and the exit codes that scripts rely on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spool.spools import (
    CHANNEL,
    SESSION,
    channel_folder,
    emit_spooled,
    layouts,
    open_spool,
    sequences,
    spool_files,
    store_ack,
    stored_bytes,
    v01_line,
)
from typer.testing import CliRunner

from holdfast.cli.spool import app
from holdfast.spool import SpoolPolicy

pytestmark = pytest.mark.rule("SP-CRASH-002")
VERBS = ["list", "show", "verify", "repair", "replay", "compact", "seal", "tail"]


def run_cli(*words: object, code: int | None = 0) -> str:
    """What the command prints, on both outputs; with any exit code where none is given."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert code is None or done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.output


def make_plain_file(root: Path, commits: list[int], ack: int = 0) -> Path:
    """A plain spool with commits of these sizes."""
    spool = open_spool(root)
    for count in commits:
        emit_spooled(spool, count)
    if ack:
        store_ack(spool, ack)
    spool.close()
    return channel_folder(root) / f"{SESSION}.spool.jsonl"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_help_that_says_what_it_is_for(verb: str) -> None:
    assert len(run_cli(verb, "--help").splitlines()) > 6


@layouts
def test_verify_calls_a_whole_file_whole(tmp_path: Path, segment_bytes: int | None) -> None:
    spool = open_spool(tmp_path, segment_bytes=segment_bytes)
    emit_spooled(spool, 5)
    spool.close()
    text = run_cli("verify", *spool_files(tmp_path))
    assert text.count(": intact") == len(spool_files(tmp_path))
    assert "to 5" in text


def test_verify_reads_a_copy_that_lies_elsewhere_and_an_old_senders_file(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(make_plain_file(tmp_path / "a", [3]).read_bytes())
    assert "records 1 to 3 (3 valid)" in run_cli("verify", copy)
    copy.write_bytes(v01_line(1) + v01_line(2))
    assert "records 1 to 2 (2 valid, 2 without CRC)" in run_cli("verify", copy)


def test_verify_calls_a_torn_tail_recoverable_and_names_the_first_bad_byte(tmp_path: Path) -> None:
    file = make_plain_file(tmp_path, [1, 1, 1])
    whole = file.read_bytes()
    last_begins = whole[:-1].rindex(b"\n") + 1
    for cut in (1, 100, 200):
        file.write_bytes(whole[:-cut])
        text = run_cli("verify", file, code=1)
        assert "recoverable" in text
        assert f"first invalid byte: {last_begins}\n" in text


def test_verify_calls_a_bad_middle_damaged_and_names_the_missing_ranges(tmp_path: Path) -> None:
    file = make_plain_file(tmp_path, [2] * 6)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:2], b"rubbish\n", *lines[4:6], *lines[9:]]))
    text = run_cli("verify", file, code=1)
    assert "damaged" in text
    assert "missing: 3-4, 7-9" in text
    assert f"first invalid byte: {len(b''.join(lines[:2]))}" in text
    file.write_bytes(b"".join([lines[0].replace(b"b-0", b"b-9"), *lines[1:]]))
    assert "missing: 1\n" in run_cli("verify", file, code=1)


def test_verify_names_what_is_missing_at_the_beginning_unless_it_was_acked(tmp_path: Path) -> None:
    file = make_plain_file(tmp_path, [2] * 3)
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[3:]))
    assert "missing: 1-3" in run_cli("verify", file, code=1)
    (channel_folder(tmp_path) / f"{SESSION}.ack").write_text("acked_sequence=3\n")
    assert "intact" in run_cli("verify", file)


def test_verify_of_a_large_file_reads_both_halves_at_once_and_reports_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.spool.files import verify as module

    file = make_plain_file(tmp_path, [50] * 10)
    alone = run_cli("verify", file)
    monkeypatch.setattr(module, "PARALLEL_BYTES", 1)
    assert run_cli("verify", file) == alone
    raw = file.read_bytes()
    for at in (1_000, len(raw) - 20_000):
        file.write_bytes(raw[:at] + b"#" + raw[at + 1 :])
        assert "damaged" in run_cli("verify", file, code=1)


def test_verify_says_2_where_a_file_cannot_be_read(tmp_path: Path) -> None:
    assert "cannot be read" in run_cli("verify", tmp_path / "none.spool.jsonl", code=2)
    assert "cannot be read" in run_cli("verify", tmp_path, code=2)


def test_a_segment_that_is_missing_is_seen_in_the_one_before_it(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, segment_bytes=1_000)
    emit_spooled(spool, 9)
    spool.close()
    first, second, _ = spool_files(tmp_path)
    second.unlink()
    assert "missing: 4-6" in run_cli("verify", first, code=1)


def test_repair_sets_a_torn_tail_aside(tmp_path: Path) -> None:
    file = make_plain_file(tmp_path, [1, 1])
    with file.open("ab") as more:
        more.write(b'{"schema_ver')
    assert "records up to 2; 1 lines of a torn tail" in run_cli("repair", file)
    assert "intact" in run_cli("verify", file)
    assert "nothing to do" in run_cli("repair", file)
    assert "quarantine 12 B" in run_cli("show", file)


def test_repair_leaves_damage_alone_until_it_is_released(tmp_path: Path) -> None:
    file = make_plain_file(tmp_path, [2] * 4)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:3], *lines[5:]]))
    before = file.read_bytes()
    assert "records 4-5" in run_cli("repair", file, code=1)
    text = run_cli("replay", "--after", 0, file, code=1)
    assert [json.loads(line)["sequence"] for line in text.splitlines() if line.startswith("{")] == [1, 2, 3]
    assert "SP-CRASH-002: records 4 to 5 are damaged or missing" in text
    assert "DAMAGED" in run_cli("list", tmp_path, code=1)
    assert "damage     records 4 to 5" in run_cli("show", file)
    assert "skips records 4-5" in run_cli("repair", "--release", file)
    assert sequences(run_cli("replay", "--after", 0, file).splitlines()) == [1, 2, 3, 6, 7, 8]
    assert "released   4-5" in run_cli("show", file)
    assert file.read_bytes() == before


def test_list_and_show_say_how_sessions_stand(tmp_path: Path) -> None:
    file = make_plain_file(tmp_path, [3, 3], ack=4)
    live = open_spool(tmp_path, "PS-live")
    emit_spooled(live, 1)
    text = run_cli("list", tmp_path)
    assert [line.split()[:5] for line in text.splitlines()[1:]] == [
        [CHANNEL, SESSION, "1-6", "4", "2"],
        [CHANNEL, "PS-live", "1-1", "0", "1"],
    ]
    assert text.splitlines()[1].endswith("unfinished")
    assert text.splitlines()[2].endswith("open")
    live.close()
    text = run_cli("show", file)
    assert "records    1 to 6" in text
    assert "acked      4" in text


def test_replay_begins_behind_the_ack_or_where_it_is_asked_to(tmp_path: Path) -> None:
    file = make_plain_file(tmp_path, [3, 3], ack=4)
    assert sequences(run_cli("replay", file).splitlines()) == [5, 6]
    assert sequences(run_cli("replay", "--after", 1, file).splitlines()) == [2, 3, 4, 5, 6]


def test_replay_of_an_open_session_prints_only_what_is_known_durable(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    emit_spooled(spool, 2)
    emit_spooled(spool, 2)
    file = channel_folder(tmp_path) / f"{SESSION}.spool.jsonl"
    assert sequences(run_cli("replay", file).splitlines()) == [
        1,
        2,
    ]  # 3 and 4 are, too, but nothing on disk says so yet
    assert "open in another" in run_cli("compact", file, code=1)
    spool.close()
    assert sequences(run_cli("replay", file).splitlines()) == [1, 2, 3, 4]


def test_compact_drops_what_was_acked_and_sessions_that_were_delivered(tmp_path: Path) -> None:
    file = make_plain_file(tmp_path, [3, 3], ack=4)
    done = open_spool(tmp_path, "PS-done")
    emit_spooled(done, 2, "CHANNEL_TERMINATED")
    store_ack(done, 2)
    done.close()
    assert "1 finished sessions deleted" in run_cli("compact", file)
    assert sequences(stored_bytes(tmp_path).splitlines()) == [5, 6]
    assert spool_files(tmp_path, "PS-done") == []


def test_seal_finishes_a_session_by_a_last_record_when_confirmed(tmp_path: Path) -> None:
    file = make_plain_file(tmp_path, [3])
    assert "pass --yes" in run_cli("seal", file, code=1)
    assert "the last record of session" in run_cli("seal", "--yes", "--detail", "gone", file)
    last = json.loads(stored_bytes(tmp_path).splitlines()[-1])
    assert (last["sequence"], last["payload_type"]) == (4, "CHANNEL_TERMINATED")
    assert (last["payload"]["reason"], last["payload"]["detail"]) == ("SEALED_BY_OPERATOR", "gone")
    assert "finished already" in run_cli("seal", "--yes", file, code=1)
    assert "final      record 4" in run_cli("show", file)


@pytest.mark.rule("SP-RET-001", "SP-RET-003")
def test_seal_finishes_a_session_of_a_channel_that_is_beyond_the_usual_cap(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, policy=SpoolPolicy(channel_bytes_max=8 << 30))
    emit_spooled(spool, 2)
    spool.close()
    with (channel_folder(tmp_path) / "other.spool.jsonl").open("wb") as large:
        large.truncate(2 << 30)  # its program has another cap than ours; on disk it takes nothing
    assert "the last record" in run_cli("seal", "--yes", spool_files(tmp_path)[0])
    last = json.loads(stored_bytes(tmp_path).splitlines()[-1])
    assert (last["sequence"], last["payload"]["reason"]) == (3, "SEALED_BY_OPERATOR")
    assert not (channel_folder(tmp_path) / "channel.full").exists()


@pytest.mark.rule("SP-CRASH-002")
def test_verify_reads_a_file_that_begins_with_a_line_nested_too_deep(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    emit_spooled(spool, 1)
    spool.close()
    file = spool_files(tmp_path)[0]
    file.write_bytes(b'{"payload":' + b"[" * 5_000 + b"]" * 5_000 + b"}\n" + file.read_bytes())
    assert "first invalid byte: 0" in run_cli("verify", file, code=1)


def test_a_path_that_is_no_spool_file_is_named(tmp_path: Path) -> None:
    for verb in ("show", "replay", "repair", "compact", "seal", "tail"):
        assert "is not a spool file" in run_cli(verb, tmp_path / "x", code=2)
    assert "No such file" in run_cli("list", tmp_path / "none", code=2)


def test_tail_follows_what_is_written(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    emit_spooled(spool, 5)
    file = channel_folder(tmp_path) / f"{SESSION}.spool.jsonl"
    assert sequences(run_cli("tail", "-n", 2, file).splitlines()) == [4, 5]
    command = [sys.executable, "-c", "from holdfast.cli.spool import app; app()", "tail", "-f", "-n", "1", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert sequences([process.stdout.readline()]) == [5]
        emit_spooled(spool, 2)
        assert sequences([process.stdout.readline(), process.stdout.readline()]) == [6, 7]
        os.kill(process.pid, signal.SIGINT)
        process.wait(30)
    spool.close()
