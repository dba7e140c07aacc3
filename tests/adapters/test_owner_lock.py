"""The lock of a journal's folder: its holder is ended by exactly its id, and one that stays is not called gone."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from holdfast.adapters.sqlite.owner_lock import OwnerLock
from holdfast.core.base.errors import Unavailable
from holdfast.system.process_identity import ProcessIdentity


@pytest.mark.rule("ENG-001")
def test_whoever_only_looks_keeps_no_owner_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look holds the lock for a moment; here it ends while the owner is waiting to ask again."""
    path = tmp_path / "owner.lock"
    path.touch()
    looking = os.open(path, os.O_RDWR)
    fcntl.flock(looking, fcntl.LOCK_EX)
    monkeypatch.setattr(time, "sleep", lambda _: os.close(looking))
    lock = OwnerLock(path)
    lock.acquire()
    assert not OwnerLock(path).is_free()
    lock.release()


@pytest.mark.rule("ENG-008")
@pytest.mark.parametrize("pid", [os.getpid(), 2**22 + 1], ids=["another process has its id", "no process has its id"])
def test_a_holder_from_another_container_cannot_be_ended_and_that_is_said(tmp_path: Path, pid: int) -> None:
    path = tmp_path / "owner.lock"
    lock = OwnerLock(path)
    lock.acquire()
    path.write_text(f"{ProcessIdentity.own()._replace(pid=pid, start='1')}\n")  # as its own container counts
    standby = OwnerLock(path)
    beat = standby.last_beat()
    assert beat is not None
    with pytest.raises(Unavailable, match="cannot be ended: the lock is held by a process that has another id here"):
        standby.evict(beat)
    lock.release()
    standby.evict(beat)  # gone is gone
