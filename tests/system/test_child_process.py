"""Calls in a child process: results, faults, deaths and time-outs each have a name, and no child is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from holdfast.system.child_process import (
    OWN_PIPE,
    CallFailed,
    CallTimedOut,
    ChildEnded,
    ChildProcess,
    StartMethod,
    exit_with_parent,
)

METHODS: tuple[StartMethod, ...] = ("spawn", "forkserver")
both_methods = pytest.mark.parametrize("method", METHODS)


def divide(number: int, by: int) -> int:
    return number // by


def unpicklable() -> object:
    return threading.Lock()


def interrupt_own_group(number: int) -> int:
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    return number


def hang(file: Path) -> None:
    half = file.with_suffix(".half")
    half.write_text(str(os.getpid()))
    half.rename(file)
    time.sleep(600)


def is_running(pid: str) -> bool:
    return Path(f"/proc/{pid}").exists()


def wait_for(file: Path) -> str:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return file.read_text()


@both_methods
def test_one_child_answers_many_calls_and_a_fault_does_not_end_it(method: StartMethod) -> None:
    with ChildProcess(method) as child:
        child.start(60)
        first = child.call(os.getpid)
        assert first != os.getpid()
        assert child.call(divide, 42, 2) == 21
        with pytest.raises(CallFailed, match="integer division") as caught:
            child.call(divide, 1, 0)
        assert caught.value.kind == "ZeroDivisionError"
        with pytest.raises(CallFailed, match="pickle"):
            child.call(unpicklable)
        assert child.call(os.getpid) == first
        assert child.is_alive
    assert not child.is_alive
    assert not is_running(str(first))


@both_methods
@pytest.mark.parametrize(("code", "says"), [(3, "ended with 3"), (-9, "ended by SIGKILL")])
def test_the_death_of_a_child_is_noticed_with_its_exit_code(method: StartMethod, code: int, says: str) -> None:
    child = ChildProcess(method)
    with pytest.raises(ChildEnded, match=says) as caught:
        child.run(os._exit, code) if code > 0 else child.run(signal.raise_signal, -code)
    assert caught.value.exit_code == code


def test_a_call_that_takes_too_long_leaves_the_child_to_be_closed(tmp_path: Path) -> None:
    with ChildProcess("spawn") as child:
        child.start(60)
        with pytest.raises(CallTimedOut):
            child.call(hang, tmp_path / "pid", timeout_s=0.5)
        assert child.is_alive
    assert not child.is_alive


def test_a_child_that_is_not_ready_in_time_is_named() -> None:
    with ChildProcess("spawn") as child, pytest.raises(CallTimedOut):
        child.start(0.0)


@both_methods
def test_a_kill_from_another_thread_ends_a_running_call(method: StartMethod, tmp_path: Path) -> None:
    child = ChildProcess(method)
    ended: list[int | None] = []

    def run() -> None:
        with pytest.raises(ChildEnded) as caught:
            child.run(hang, tmp_path / "pid")
        ended.append(caught.value.exit_code)

    thread = threading.Thread(target=run)
    thread.start()
    pid = wait_for(tmp_path / "pid")
    child.kill()
    thread.join(60)
    assert ended == [-signal.SIGKILL]
    assert not is_running(pid)


def test_a_child_that_is_killed_before_it_starts_never_starts(tmp_path: Path) -> None:
    child = ChildProcess("spawn")
    child.kill()
    with pytest.raises(ChildEnded):
        child.run(hang, tmp_path / "pid")
    assert not (tmp_path / "pid").exists()


@both_methods
def test_a_signal_for_the_whole_group_is_ignored_by_the_child(method: StartMethod) -> None:
    assert ChildProcess(method).run(interrupt_own_group, 7) == 7
    with pytest.raises(ChildEnded, match="SIGTERM"):
        ChildProcess(method, ignored=(signal.SIGINT,)).run(interrupt_own_group, 7)


def test_a_child_ends_with_its_parent_also_in_the_middle_of_a_call(tmp_path: Path) -> None:
    """The parent is a program of its own that is killed."""
    file = tmp_path / "pid"
    parent = subprocess.Popen([sys.executable, "-m", "tests.system.test_child_process", str(file)])
    pid = wait_for(file)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 60
    while is_running(pid) and "State:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("what", ["waits", "sends"])
def test_a_child_whose_parent_was_killed_ends_without_a_word(what: str) -> None:
    """What it writes would stand in the log of a node that was killed. Its end closes the last handle of the pipe."""
    command = [sys.executable, "-m", "tests.system.test_child_process", what]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "ready\n"
    parent.kill()
    assert parent.communicate(timeout=60) == ("", "")


def send_for_ever(pipe: Connection) -> None:
    while True:
        pipe.send("message")
        time.sleep(0.001)


def run_as_parent(word: str) -> None:
    if word in ("waits", "sends"):
        child = ChildProcess("spawn")
        child.start()
        if word == "sends":
            child.begin(send_for_ever, OWN_PIPE)
        print("ready", flush=True)
        while True:
            child.take_message()
            time.sleep(0.001)
    ChildProcess("spawn", exit_with_parent).run(hang, Path(word))


if __name__ == "__main__":
    run_as_parent(sys.argv[1])
