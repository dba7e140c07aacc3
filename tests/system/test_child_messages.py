"""A child that serves calls passes over what was meant for a call that has ended (ENG-004)."""

from __future__ import annotations

import threading
from multiprocessing import Pipe

import pytest

from holdfast.system import child_process


@pytest.mark.rule("ENG-004")
def test_a_message_for_a_call_that_has_ended_is_passed_over() -> None:
    ours, theirs = Pipe()
    child = threading.Thread(target=child_process._serve, args=(theirs, None, ()))
    child.start()
    ours.recv()  # it is ready
    ours.send((1, 2, 3))
    ours.send((len, ("abc",)))
    assert ours.poll(20), "it has ended"
    assert ours.recv() == child_process._Returned(True, 3)
    ours.close()
    child.join(20)
    assert not child.is_alive()
