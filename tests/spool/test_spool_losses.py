"""SP-LOSS-001: what can be known to be missing is told with its range, and nothing that speaks of it is deleted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.spool.spools import (
    CHANNEL,
    NOW_MS,
    SESSION,
    channel_folder,
    check_refused,
    emit_spooled,
    open_spool,
    sequences,
    spool_files,
    store_ack,
)
from tests.spool.test_spool_cli import run_cli

from holdfast.spool import Corrupt, Spool, channel, undelivered_sessions
from holdfast.spool.files.disk import RealDisk
from holdfast.spool.files.names import SessionPaths
from holdfast.spool.files.session_markers import read_final, write_released

pytestmark = pytest.mark.rule("SP-LOSS-001")
TINY = 1_000
"""Bytes of a segment of three records."""


def marker(root: Path, kind: str) -> Path:
    return channel_folder(root) / f"{SESSION}{kind}"


def status(root: Path) -> channel.SessionStatus:
    return channel.read_status(RealDisk(), SessionPaths(channel_folder(root), CHANNEL, SESSION))


def make_session(root: Path, count: int = 9, ack: int = 0, *, final: bool = False, **options: Any) -> None:
    spool = open_spool(root, **options)
    emit_spooled(spool, count - 1)
    emit_spooled(spool, 1, "CHANNEL_TERMINATED" if final else "BLOCK_START")
    if ack:
        store_ack(spool, ack)
    assert spool.close(final=final) is None


def content(root: Path) -> dict[str, bytes]:
    """All that is there, but for the lock."""
    every = channel_folder(root).iterdir()
    return {path.name: path.read_bytes() for path in every if path.is_file() and path.suffix != ".lock"}


# Each loses some records of a session of nine, and says which are named.


def lose_first_segment(root: Path) -> str:
    make_session(root, segment_bytes=TINY)
    spool_files(root)[0].unlink()
    return "records 1 to 3 are missing"


def lose_first_segment_partly_acked(root: Path) -> str:
    make_session(root, ack=2, segment_bytes=TINY)
    spool_files(root)[0].unlink()
    return "record 3 is missing"


def lose_end_below_final(root: Path) -> str:
    make_session(root, final=True)
    file = spool_files(root)[0]
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:7]))
    return "records 8 to 9 are missing"


def lose_end_below_ack(root: Path) -> str:
    make_session(root, ack=8)
    file = spool_files(root)[0]
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:5]))
    return "records 6 to 8 are missing"


def lose_file_beside_ack(root: Path) -> str:
    make_session(root, ack=4)
    spool_files(root)[0].unlink()
    return "records 1 to 4 are missing"


def lose_file_beside_final(root: Path) -> str:
    make_session(root, final=True)
    spool_files(root)[0].unlink()
    return "records 1 to 9 are missing"


def flip_last_commit_below_final(root: Path) -> str:
    make_session(root, final=True)
    file = spool_files(root)[0]
    raw = file.read_bytes()
    file.write_bytes(raw[:-80] + bytes([raw[-80] ^ 1]) + raw[-79:])
    return "record 9 is damaged"


def link_in_place(root: Path) -> str:
    make_session(root, final=True)
    file = spool_files(root)[0]
    file.rename(root / "elsewhere")
    file.symlink_to(root / "elsewhere")
    return "records 1 to 9 are missing: in the place of"


def folder_in_place_of_a_segment(root: Path) -> str:
    make_session(root, segment_bytes=TINY)
    second = spool_files(root)[1]
    second.unlink()
    second.mkdir()
    return "records 4 to 6 are missing: in the place of"


def link_without_marks(root: Path) -> str:
    make_session(root)
    file = spool_files(root)[0]
    file.rename(root / "elsewhere")
    file.symlink_to(root / "elsewhere")
    return "records from 1 on are missing: in the place of"


LOSSES = [
    lose_first_segment,
    lose_first_segment_partly_acked,
    lose_end_below_final,
    lose_end_below_ack,
    lose_file_beside_ack,
    lose_file_beside_final,
    flip_last_commit_below_final,
    link_in_place,
    folder_in_place_of_a_segment,
    link_without_marks,
]
every_loss = pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)


@every_loss
def test_a_loss_is_named_nothing_is_written_and_nothing_that_speaks_of_it_goes(
    tmp_path: Path, lose: Callable[[Path], str]
) -> None:
    says, before = lose(tmp_path), content(tmp_path)
    spool = open_spool(tmp_path)
    assert says in spool.damage
    check_refused(spool.emit("BLOCK_START", {}), "SessionDamaged")
    spool.step()
    spool.close()
    file = channel_folder(tmp_path) / f"{SESSION}.spool.jsonl"
    assert says in run_cli("list", tmp_path, code=1)
    assert says in run_cli("show", spool_files(tmp_path)[0] if spool_files(tmp_path) else file)
    channel.reclaim(RealDisk(), channel_folder(tmp_path), NOW_MS, except_session="")
    run_cli("compact", spool_files(tmp_path)[0] if spool_files(tmp_path) else file)
    assert content(tmp_path) == before


@every_loss
def test_verify_calls_every_loss_damaged(tmp_path: Path, lose: Callable[[Path], str]) -> None:
    says = lose(tmp_path)
    files = list(channel_folder(tmp_path).glob("*.spool.jsonl")) or [
        channel_folder(tmp_path) / f"{SESSION}.spool.jsonl"
    ]
    text = run_cli("verify", *files, code=1)
    assert "damaged" in text
    numbers = [word for word in says.split(":")[0].split() if word.isdigit()]
    assert any(word in text for word in ("-".join(numbers), says)), text


@pytest.mark.parametrize(
    "lose", [lose_first_segment, lose_end_below_final, lose_file_beside_final, flip_last_commit_below_final]
)
def test_replay_stops_before_a_loss_and_the_sender_of_older_sessions_is_given_it(
    tmp_path: Path, lose: Callable[[Path], str]
) -> None:
    says = lose(tmp_path)
    assert [each.paths.session for each in undelivered_sessions(tmp_path, CHANNEL)] == [SESSION]
    spool = open_spool(tmp_path)
    assert spool.acked_sequence == 0
    with pytest.raises(Corrupt) as hole:
        list(spool.replay())
    assert says.split(" are ")[0].split(" is ")[0] in str(hole.value) or "were acked" not in str(hole.value)
    spool.close()


def test_repair_names_a_record_that_is_damaged_and_missing_once(tmp_path: Path) -> None:
    flip_last_commit_below_final(tmp_path)
    assert "records 9 are missing or invalid" in run_cli("repair", spool_files(tmp_path)[0], code=1)


@pytest.mark.parametrize("kind", [".ack", ".final"])
@pytest.mark.parametrize("raw", [b"", b"\0" * 40, b"acked_sequence=x\nfinal_sequence=x\n", b"\xff", None])
def test_a_mark_that_cannot_be_read_counts_as_none_for_replay_and_no_sequence_is_given_out(
    tmp_path: Path, kind: str, raw: bytes | None
) -> None:
    make_session(tmp_path, 5)
    if raw is None:
        marker(tmp_path, kind).mkdir()
    else:
        marker(tmp_path, kind).write_bytes(raw)
    spool = open_spool(tmp_path)
    assert f"the marker {SESSION}{kind} cannot be read" in spool.damage
    assert sequences(spool.replay()) == [1, 2, 3, 4, 5]
    check_refused(spool.emit("BLOCK_START", {}), "SessionDamaged")
    spool.close()
    assert "SP-LOSS-001" in run_cli("repair", spool_files(tmp_path)[0], code=1)
    new = open_spool(tmp_path, "PS-new")
    emit_spooled(new, 1)
    new.close()


def test_a_released_loss_is_passed_over_and_stays_known_when_the_session_is_deleted(tmp_path: Path) -> None:
    make_session(tmp_path, ack=0, final=True, segment_bytes=TINY)
    spool_files(tmp_path)[0].unlink()
    assert "skips records 1-3" in run_cli("repair", "--release", spool_files(tmp_path)[0])
    spool = open_spool(tmp_path)
    assert sequences(spool.replay()) == [4, 5, 6, 7, 8, 9]
    spool.ack(9)
    spool.step()
    spool.close()
    assert not status(tmp_path).losses
    assert channel.reclaim(RealDisk(), channel_folder(tmp_path), NOW_MS, except_session="") == 1
    assert set(content(tmp_path)) == {f"{SESSION}.final", f"{SESSION}.released"}
    assert channel.reclaim(RealDisk(), channel_folder(tmp_path), NOW_MS, except_session="") == 0
    assert "1-3" in run_cli("show", channel_folder(tmp_path) / f"{SESSION}.spool.jsonl")
    again = open_spool(tmp_path)
    check_refused(again.emit("BLOCK_START", {}), "SessionFinished")
    again.close()


@pytest.mark.rule("SP-RET-001")
def test_a_session_is_recorded_as_delivered_before_its_records_go(tmp_path: Path) -> None:
    class Dying(RealDisk):
        def unlink(self, path: Path) -> None:
            if path.name.endswith(".spool.jsonl"):
                super().unlink(path)
                raise OSError("the process dies here")
            super().unlink(path)

    make_session(tmp_path, ack=9, final=True)
    paths = SessionPaths(channel_folder(tmp_path), CHANNEL, SESSION)
    with pytest.raises(OSError, match="dies here"):
        channel.delete_session(Dying(), status(tmp_path), NOW_MS)
    final = read_final(RealDisk(), paths)
    assert final is not None
    assert final.is_delivered
    assert not status(tmp_path).losses
    assert channel.reclaim(RealDisk(), channel_folder(tmp_path), NOW_MS, except_session="") == 1
    assert content(tmp_path) == {}


def test_no_sequence_at_or_below_a_released_hole_is_used_again(tmp_path: Path) -> None:
    make_session(tmp_path, 5)
    write_released(RealDisk(), SessionPaths(channel_folder(tmp_path), CHANNEL, SESSION), [(6, 8)], NOW_MS)
    spool = open_spool(tmp_path)
    assert "records 6 to 8" in spool.damage
    spool.close()


def test_two_lists_of_the_same_root_say_the_same(tmp_path: Path) -> None:
    """Listing and opening change nothing about what is known."""
    lose_file_beside_final(tmp_path)
    first = run_cli("list", tmp_path, code=1)
    spool = open_spool(tmp_path)
    assert isinstance(spool, Spool)
    spool.close()
    assert run_cli("list", tmp_path, code=1) == first
