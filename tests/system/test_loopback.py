"""Free ports are below those that the system gives out, and none that is in use or taken is found."""

from __future__ import annotations

import socket

from holdfast.system.loopback import PORTS, find_free_port


def test_a_port_in_use_and_one_that_is_taken_are_passed_over() -> None:
    first = find_free_port()
    assert first in PORTS
    with socket.socket() as used:
        used.bind(("127.0.0.1", first))
        second = find_free_port()
        assert second not in (first, None)
        third = find_free_port({second or 0})
        assert third not in (first, second, None)


def test_where_all_are_taken_there_is_none() -> None:
    assert find_free_port(PORTS) is None
