"""`holdfast dashboard` as a user runs it: a clear error without a node."""

from __future__ import annotations

import pytest
from tests.loopback_ports import free_port
from tests.stories.cli_runner import holdfast

from holdfast.api.dashboard.page import STATIC

pytestmark = pytest.mark.rule("OBS-001")


def test_without_a_node_it_says_so_and_ends() -> None:
    ended = holdfast("dashboard", "--url", f"http://127.0.0.1:{free_port()}", "--port", "0")
    if (STATIC / "index.html").exists():
        assert ended.code == 75, ended
        assert "no answer from http://127.0.0.1:" in ended.err
    else:
        assert "make page" in ended.err
    assert ended.out == ""
    assert "Traceback" not in ended.err
