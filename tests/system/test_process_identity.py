"""Exactly the process that was named is ended, also a stopped one, and no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast.system.process_identity import NotEnded, ProcessIdentity, end_process

pytestmark = pytest.mark.rule("ENG-008")
NAMES_ITSELF = (
    "from holdfast.system.process_identity import ProcessIdentity; import time;"
    "print(ProcessIdentity.own(), flush=True); time.sleep(600)"
)


@pytest.fixture
def process() -> Iterator[tuple[subprocess.Popen[str], ProcessIdentity]]:
    child = subprocess.Popen([sys.executable, "-c", NAMES_ITSELF], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    identity = ProcessIdentity.parse(child.stdout.readline())
    assert identity is not None
    yield child, identity
    child.kill()
    child.communicate()


def test_a_stopped_process_is_ended(process: tuple[subprocess.Popen[str], ProcessIdentity]) -> None:
    child, identity = process
    os.kill(child.pid, signal.SIGSTOP)
    end_process(identity, 30)
    assert child.wait(30) == -signal.SIGKILL
    end_process(identity, 30)  # gone is gone


def test_another_process_under_the_same_id_is_left_alone(
    process: tuple[subprocess.Popen[str], ProcessIdentity],
) -> None:
    child, identity = process
    end_process(identity._replace(start="1"), 30)
    with pytest.raises(NotEnded, match="another machine"):
        end_process(identity._replace(boot="another"), 30)
    assert child.poll() is None


def test_what_a_lock_says_is_read_back_or_is_nothing() -> None:
    own = ProcessIdentity.own()
    assert own.pid == os.getpid()
    assert ProcessIdentity.parse(f"{own}\n") == own
    assert ProcessIdentity.parse("17\n") == ProcessIdentity(17)
    assert ProcessIdentity.parse("") is None
    assert ProcessIdentity.parse("half a li") is None
