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
from typing import Any

import pytest
from tests.storage.stores import Place
from tests.stories.cli_runner import holdfast

from holdfast.demo.archive_act import check_fetched
from holdfast.demo.event_history import EventHistory
from holdfast.demo.faults import AgentKilled, ArchiveBroken, NodeKilled
from holdfast.demo.jobs import COUNT, all_jobs
from holdfast.demo.pace import Pace
from holdfast.demo.receipt_check import ReceiptReport, check_receipts
from holdfast.demo.receipts import RequestRecord, RequestStatus
from holdfast.demo.screen.board import Board, Check

HOLDFAST = (sys.executable, "-m", "holdfast")
QUICK = ("--seconds", "8")
LYING = tuple(word for fault in ("agent", "node", "archive-lies") for word in ("--break", fault))
A, B = "aa" * 32, "bb" * 32
OAK, FIR = "0a" * 32, "0f" * 32
FIGURES = r"^submitted (\d+)  finished (\d+)  lost (\d+)  done twice (\d+)  faults survived (\d+) of (\d+)"


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


@pytest.mark.timeout(240)
@pytest.mark.rule("ENG-002", "ENG-003", "LEA-005", "RTY-002", "EVD-002", "RES-008", "ARC-004", "PRU-001", "RET-002")
def test_an_agent_and_the_node_are_killed_and_every_job_has_one_result(place: Place) -> None:
    demo = start(*QUICK, "--store", "postgres", HOLDFAST_POSTGRES__DSN=place.address.dsn)
    says, _ = demo.communicate(timeout=240)
    assert demo.returncode == 0, says
    check_figures(says)
    assert not folder_in(says).exists(), "a good run leaves nothing behind"
    left = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'holdfast_demo%'"
    assert place.server().psql(left) == "0", "nor on the server"
    assert "s3cret" not in says


@pytest.mark.full
@pytest.mark.timeout(240)
@pytest.mark.rule("ENG-002", "ENG-003", "LEA-005", "RTY-002", "EVD-002", "RES-008")
def test_a_demo_that_is_kept_can_be_looked_at_and_stopped_as_it_says(tmp_path: Path) -> None:
    demo = start(*QUICK, "--keep", "--data", str(tmp_path / "d"), *LYING)
    says, _ = demo.communicate(timeout=240)
    found = re.search(r"Stop them: kill ([\d ]+);", says)
    pids = [int(pid) for pid in found[1].split()] if found else []
    try:
        assert demo.returncode == 0, says
        check_figures(says)
        assert len(pids) == 5, "a node, three agents and the gateway"
        assert "read back: other bytes than those that the block commits to" in says
        jobs = holdfast("job", "list", "--json", "--data", tmp_path / "d" / "node").json["rows"]
        assert [job["state"] for job in jobs] == ["COMPLETED"] * COUNT
        assert holdfast("verify", tmp_path / "d" / "proof.json").code == 0
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not any(is_alive(pid) for pid in pids), "all of them end")


def check_figures(says: str) -> None:
    submitted, finished, lost, twice, survived, faults = map(int, re.findall(FIGURES, says, re.M)[-1])
    assert (submitted, finished, lost, twice) == (COUNT, COUNT, 0, 0)
    assert survived == faults == 3
    assert str(Pace.from_seconds(8)) in says.splitlines()[0], "shortened times are said on the first line"
    assert "\x1b" not in says, "a pipe gets no control codes"
    assert "▲ " not in says.split("jobs done twice")[1], "no check fails"
    for sentence in SENTENCES:
        assert sentence in says
    assert "--exec 'shout=tr a-z A-Z'" in says, "anybody's own command does some of the work"
    for kind, output in OUTPUTS.items():
        assert re.search(rf"^      ✔ .*{kind} ▸ {output}", says, re.M), f"the output of {kind} is on the screen"


OUTPUTS = {"nap": r"nap \d", "digit": r"a \d", "GHZ": r"0×\d+ 1×\d", "essay": "159 kB", "shout": r"HEY \d"}
SENTENCES = (
    "You handed over 40 jobs and got 40 receipts. The queue holds them now.",
    "A result counts only when a block holds its proof.",
    "ash is gone. Its job is not.",
    "The agents kept every record until the node said: I have it.",
    "Bytes are let go only after the archive's receipt.",
    "Do not believe the demo: check it.",
)


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


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)], ids=["Ctrl-C", "SIGTERM"]
)
def test_ctrl_c_ends_the_demos_own_processes_and_says_where_the_data_is(tmp_path: Path, number: signal.Signals) -> None:
    demo, children = running_demo(tmp_path / "d")
    demo.send_signal(number)
    says, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130, says
    assert f"The data is in {tmp_path / 'd'}" in says
    assert [pid for pid in children if is_alive(pid)] == []


def test_a_process_that_ends_by_itself_fails_the_demo_with_its_last_words(tmp_path: Path) -> None:
    demo, children = running_demo(tmp_path / "d")
    os.kill(next(pid for pid in children if "fir" in command_line_of(pid)), signal.SIGTERM)
    says, _ = demo.communicate(timeout=60)
    assert demo.returncode == 1, says
    assert "fir ended by itself" in says
    assert "the end of " in says
    assert [pid for pid in children if is_alive(pid)] == []


def running_demo(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A demo whose node and agents all run."""
    demo = start("--seconds", "20", "--data", str(folder))
    wait_for((folder / "fir" / "spool").exists, "the last agent is there")
    children = children_of(demo.pid)
    assert len(children) == 5, "the gateway, a node and three agents"
    return demo, children


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


def command_line_of(pid: int) -> list[str]:
    """The command that it was started with."""
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def is_alive(pid: int) -> bool:
    """Whether it runs; one that has ended and that nobody has asked after does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# ------------------------------------------------------------------------------------------------ the judge can say no


def receipt(number: int = 1, task_id: str = A, event: int = 1) -> RequestRecord:
    return RequestRecord(RequestStatus.CONFIRMED, number, task_id, event)


def store(*events: tuple[str, dict[str, Any]]) -> EventHistory:
    history = EventHistory()
    for number, (kind, event) in enumerate(events, start=1):
        history.add(number, 1_000 + number, kind, event)
    return history


def admitted(id_: str = A) -> tuple[str, dict[str, Any]]:
    return "jobAdmitted", {"id": id_, "max_fee": 100, "enqueue_ms": 1_001}


def leased(lease_id: str, provider: str = OAK, attempt: int = 0, id_: str = A) -> tuple[str, dict[str, Any]]:
    names = {"lease_id": lease_id, "job_id": id_, "provider_id": provider, "attempt": attempt}
    return "jobAssigned", names | {"t_start_ms": 1_002, "t_deadline_ms": 6_002}


def accepted(lease_id: str, provider: str = OAK, id_: str = A) -> tuple[str, dict[str, Any]]:
    names = {"task_id": id_, "lease_id": lease_id, "provider_id": provider, "digest": "dd" * 32, "size": 5}
    return "jobCompleted", names | {"payee": "oak", "charged": 3, "method": "attested", "ended_ms": 1_003}


def closed(lease_id: str) -> tuple[str, dict[str, Any]]:
    return "leaseExpired", {"id": lease_id, "reason": "LEASE_EXPIRED", "at_ms": 6_002, "not_before_ms": 6_500}


OWNED = ("ownershipTaken", {"outage_ms": 0})
SEALED = ("blockSealed", {"height": 1, "time_ms": 1_004})
FAILED = ("jobFailed", {"id": A, "reason": "ATTEMPTS_EXHAUSTED"})
DONE = (admitted(), leased("l1"), accepted("l1"), SEALED)


def verdict_at_the_end(*notes: RequestRecord, events: tuple[tuple[str, dict[str, Any]], ...]) -> ReceiptReport:
    return check_receipts(notes, store(*events), is_over=True)


@pytest.mark.rule("JOB-006")
def test_a_job_that_was_admitted_once_and_has_one_proof_in_a_block_is_neither_lost_nor_done_twice() -> None:
    verdict = verdict_at_the_end(receipt(), events=DONE)
    assert (verdict.receipts, verdict.lost, verdict.duplicated, verdict.is_good) == (1, [], [], True)


@pytest.mark.parametrize(
    ("note", "events"),
    [
        (receipt(task_id=B), DONE),
        (receipt(event=2), DONE),
        (receipt(), (admitted(), leased("l1"))),
        (receipt(), (admitted(), leased("l1"), accepted("l1"))),
        (receipt(), (admitted(), FAILED)),
        (receipt(), ()),
    ],
    ids=["unknown job", "another event", "no proof", "in no sealed block", "ended without a result", "empty store"],
)
def test_a_receipt_that_the_store_does_not_honour_is_a_lost_job(
    note: RequestRecord, events: tuple[tuple[str, dict[str, Any]], ...]
) -> None:
    verdict = verdict_at_the_end(note, events=events)
    assert verdict.lost == [note]
    assert not verdict.is_good


@pytest.mark.parametrize(
    "events",
    [
        (admitted(), leased("l1"), accepted("l1"), accepted("l1"), SEALED),
        (admitted(), leased("l1"), accepted("l1"), leased("l2", FIR, 1), accepted("l2", FIR), SEALED),
        (admitted(), admitted(), leased("l1"), accepted("l1"), SEALED),
    ],
    ids=["the same proof twice", "two proofs", "taken in twice"],
)
def test_a_job_that_was_done_twice_is_seen(events: tuple[tuple[str, dict[str, Any]], ...]) -> None:
    verdict = verdict_at_the_end(receipt(), events=events)
    assert verdict.duplicated == [A]
    assert not verdict.is_good


@pytest.mark.rule("JOB-002")
def test_asking_again_that_made_a_second_job_is_seen() -> None:
    notes = [RequestRecord(RequestStatus.REQUESTED, 1), receipt()]
    assert check_receipts(notes, store(*DONE, admitted(B))).duplicated == [B]


def test_a_request_whose_answer_never_came_may_have_made_its_job() -> None:
    notes = [RequestRecord(RequestStatus.REQUESTED, 1), receipt(), RequestRecord(RequestStatus.REQUESTED, 2)]
    verdict = check_receipts(notes, store(*DONE, admitted(B)))
    assert verdict.is_good
    assert verdict.receipts == 1


def test_a_job_that_still_waits_is_not_lost_while_the_demo_runs() -> None:
    assert check_receipts([receipt()], store(admitted())).is_good


def test_a_job_that_ended_without_a_result_is_lost_at_once() -> None:
    assert check_receipts([receipt()], store(admitted(), FAILED)).lost == [receipt()]


def test_a_killed_agent_is_survived_only_when_another_one_finished_its_job() -> None:
    fault = AgentKilled("l1", A, OAK)
    retried = (admitted(), leased("l1"), closed("l1"), leased("l2", FIR, 1))
    assert not fault.is_survived(store(*retried))
    assert fault.is_survived(store(*retried, accepted("l2", FIR)))
    assert not fault.is_survived(store(*retried[:3], leased("l3", OAK, 1), accepted("l3"))), "that was no other one"
    assert not fault.is_survived(store(admitted(), leased("l1"), leased("l2", FIR, 1), accepted("l2", FIR))), "it lives"
    assert not fault.is_survived(store(*DONE)), "it finished the job itself: nothing was killed in mid-job"


def test_a_killed_node_is_survived_only_when_a_proof_was_accepted_by_its_successor() -> None:
    fault = NodeKilled(after_event=2)
    assert not fault.is_survived(store(OWNED, admitted()))
    assert not fault.is_survived(store(OWNED, admitted(), OWNED))
    assert fault.is_survived(store(OWNED, admitted(), OWNED, leased("l1"), accepted("l1")))


def of_blob(kind: str, number: int = 0, **fields: Any) -> tuple[str, dict[str, Any]]:
    return kind, {"height": 3, "number": number, **fields}


ADDED = of_blob("blobAdded", content={"parts": [{"task_id": A}]})
REFUSED = of_blob("uploadFailed", reason="status 507")
ARCHIVED = of_blob("blobArchived", assurance="verified", locator="load-s3://x")
PRUNED = ("blobsPruned", {"height": 3})


@pytest.mark.rule("ARC-004", "PRU-001")
def test_a_broken_archive_is_survived_only_when_bytes_went_after_they_were_read_back() -> None:
    fault = ArchiveBroken(0)
    assert fault.is_survived(store(ADDED, REFUSED, ARCHIVED, PRUNED))
    assert fault.is_survived(store(ADDED, REFUSED, ARCHIVED)), "still here"
    assert not fault.is_survived(store(ADDED, REFUSED)), "not archived"
    assert not fault.is_survived(store(ADDED, REFUSED, PRUNED, ARCHIVED)), "deleted too early"
    assert not fault.is_survived(store(ADDED, ARCHIVED, PRUNED)), "nobody noticed"
    signed = of_blob("blobArchived", assurance="signed", locator="load-s3://x")
    assert not fault.is_survived(store(ADDED, REFUSED, signed, PRUNED)), "nobody has read it back"
    other = of_blob("uploadFailed", 1, reason="status 507")
    assert not fault.is_survived(store(ADDED, REFUSED, other, ARCHIVED)), "another blob is not archived"
    early = of_blob("blobAdded", 1, content={"parts": []})
    assert not fault.is_survived(store(ADDED, REFUSED, early, ARCHIVED, PRUNED)), "another one was deleted unarchived"


def test_bytes_that_the_archive_returns_are_compared_with_what_the_job_must_give(tmp_path: Path) -> None:
    (tmp_path / "fetched").write_bytes(b"output")
    assert check_fetched(tmp_path / "fetched", b"output", ["a", "b"]).is_good
    assert not check_fetched(tmp_path / "fetched", b"other", ["a", "b"]).is_good
    assert not check_fetched(tmp_path / "fetched", b"output", ["a"]).is_good, "it must span blobs"


def test_the_archive_refuses_or_lies_not_both() -> None:
    demo = start("--break", "archive-lies", "--break", "archive-refuses")
    says, _ = demo.communicate(timeout=60)
    assert (demo.returncode, "not both" in says) == (2, True)


def test_one_bad_check_is_enough_for_the_demo_to_fail(tmp_path: Path) -> None:
    board = Board(tmp_path, "", all_jobs(Pace.from_seconds(40)))
    assert not board.is_good, "nothing checked is nothing proven"
    board.checks = [Check("one", "", is_good=True)]
    assert board.is_good
    board.checks.append(Check("two", "", is_good=False))
    assert not board.is_good


def test_evidence_that_does_not_follow_its_watermark_is_a_gap() -> None:
    def taken(first: int, last: int) -> tuple[str, dict[str, Any]]:
        return "evidenceStored", {"channel": "c", "session": "s", "first": first, "last": last}

    assert store(taken(1, 3), taken(4, 4)).gaps == 0
    assert store(taken(1, 3), taken(5, 5)).gaps == 1
