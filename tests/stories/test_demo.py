"""The demo, as a stranger runs it: it ends well, its figures hold, and its judge is able to say no."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.storage.stores import Place

from holdfast.cli.demonstration.history import History
from holdfast.cli.demonstration.notebook import Note, Said
from holdfast.cli.demonstration.verdict import judge

HOLDFAST = (sys.executable, "-c", "from holdfast.cli import main; main()")
ID, OTHER = "aa" * 32, "bb" * 32


def start(*options: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*HOLDFAST, "demo", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        env=os.environ | environ,
    )


def folder_in(says: str) -> Path:
    found = re.search(r"^folder (.+)$", says, re.MULTILINE)
    assert found, says
    return Path(found[1])


# ------------------------------------------------------------------------------------------------ the whole


@pytest.mark.rule("ENG-002", "ENG-003")
@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_nothing_confirmed_is_lost_or_done_twice_when_the_node_is_killed(place: Place, store: str) -> None:
    environ = {"HOLDFAST_POSTGRES__DSN": place.address.dsn} if store == "postgres" else {}
    demo = start("--seconds", "4", "--store", store, **environ)
    says, _ = demo.communicate(timeout=240)
    assert demo.returncode == 0, says
    last = re.findall(r"^sent (\d+)  confirmed (\d+)  lost (\d+)  done twice (\d+)  faults survived (\d+)", says, re.M)[
        -1
    ]
    sent, confirmed, lost, twice, faults = map(int, last)
    assert sent >= confirmed > 0
    assert (lost, twice) == (0, 0)
    assert faults >= 1
    assert "\x1b" not in says, "a pipe gets no control codes"
    assert "▲ " not in says.split("the proof")[1]
    assert not folder_in(says).exists(), "a good run leaves nothing behind"
    if store == "postgres":
        left = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'holdfast_demo%'"
        assert place.server().psql(left) == "0", "nor on the server"
        assert "s3cret" not in says


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize(
    ("environ", "hint"),
    [
        ({}, "set HOLDFAST_POSTGRES__DSN=postgresql://user:password@host/database"),
        ({"HOLDFAST_POSTGRES__DSN": "postgresql//geheim"}, "matching regex"),
    ],
)
def test_a_demo_on_postgresql_without_a_server_starts_nothing_and_says_what_it_needs(
    environ: dict[str, str], hint: str
) -> None:
    demo = start("--store", "postgres", **environ)
    says, _ = demo.communicate(timeout=60)
    assert demo.returncode == 2
    assert "SEC-001: postgres.dsn: " in says
    assert hint in says
    assert "geheim" not in says


def test_ctrl_c_ends_the_demos_own_processes_and_says_where_the_data_is(tmp_path: Path) -> None:
    demo = start("--seconds", "60", "--data", str(tmp_path / "d"))
    wait_for(lambda: list((tmp_path / "d" / "notes").glob("oak.jsonl")), "a client notes something")
    children = children_of(demo.pid)
    assert len(children) == 5, "a node and four clients"
    demo.send_signal(signal.SIGINT)
    says, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130, says
    assert f"The data lies in {tmp_path / 'd'}" in says
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    demo = start("--data", str(tmp_path))
    says, _ = demo.communicate(timeout=60)
    assert demo.returncode == 2
    assert "not an empty folder" in says
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def wait_for(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def children_of(pid: int) -> list[int]:
    """Processes whose parent this is, as Linux tells it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == pid:
                found.append(int(entry.name))
    return found


# ------------------------------------------------------------------------------------------------ the judge can say no


def confirmed(kind: str, id_: str = ID, amount: int = 100, event: int = 1) -> Note:
    return Note(Said.CONFIRMED, kind, id_, amount, event)


def store(*events: tuple[str, dict[str, object]]) -> History:
    history = History()
    for number, (kind, event) in enumerate(events, start=1):
        history.take(number, kind, event)
    return history


RESERVED = ("Reserved", {"id": ID, "owner": "alice", "amount": 100})
CHARGED = ("Charged", {"id": ID, "height": 1, "payee": "bob", "charged": 40})
REFUNDED = ("Refunded", {"id": ID, "height": 1})


def test_what_is_there_once_is_neither_lost_nor_done_twice() -> None:
    verdict = judge([confirmed("reserve"), confirmed("charge", amount=40, event=2)], store(RESERVED, CHARGED))
    assert (verdict.confirmed, verdict.lost, verdict.twice, verdict.is_good) == (2, [], [], True)


@pytest.mark.parametrize(
    "note",
    [
        confirmed("reserve", OTHER),
        confirmed("reserve", amount=99),
        confirmed("reserve", event=2),
        confirmed("charge", amount=100),
        confirmed("mint"),
        Note(Said.CONFIRMED, "finalize", "1", event=1),
    ],
    ids=["unknown id", "another amount", "another event", "another deed", "not minted", "not final"],
)
def test_a_confirmation_that_the_store_does_not_know_is_lost(note: Note) -> None:
    verdict = judge([confirmed("reserve"), note], store(RESERVED))
    assert verdict.lost == [note]
    assert not verdict.is_good


@pytest.mark.parametrize(
    ("events", "twice"),
    [
        ((RESERVED, RESERVED), [("reserve", ID)]),
        ((RESERVED, CHARGED, CHARGED), [("settle", ID)]),
        ((RESERVED, CHARGED, REFUNDED), [("settle", ID)]),
    ],
    ids=["reserved twice", "charged twice", "charged and refunded"],
)
def test_an_id_to_which_one_thing_happened_twice_is_seen(
    events: tuple[tuple[str, dict[str, object]], ...], twice: list[tuple[str, str]]
) -> None:
    verdict = judge([confirmed("reserve")], store(*events))
    assert verdict.twice == twice
    assert not verdict.is_good


def test_what_was_only_asked_or_refused_is_no_confirmation() -> None:
    notes = [Note(Said.ASKED, "reserve", OTHER, 100), Note(Said.REFUSED, "reserve", OTHER, 100)]
    assert judge(notes, store(RESERVED)).confirmed == 0
