"""The log of a node: where its lines go, and what becomes of the node when they cannot go there."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest
import structlog

from holdfast.app.log_output import configure_logging
from holdfast.config import LogSettings


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


class Full(io.StringIO):
    """A file on a disk without room."""

    def write(self, _: str) -> int:
        raise OSError(28, "No space left on device")


def closed() -> io.StringIO:
    gone = io.StringIO()
    gone.close()
    return gone


@pytest.mark.parametrize("stderr", [Full(), closed()], ids=["full", "closed"])
def test_a_log_that_cannot_be_written_costs_its_lines_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO
) -> None:
    configure_logging(LogSettings())
    monkeypatch.setattr(sys, "stderr", stderr)
    structlog.get_logger().warning("the journal did not confirm")


def test_lines_go_to_standard_error_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    configure_logging(LogSettings())
    monkeypatch.setattr(sys, "stderr", told := io.StringIO())
    structlog.get_logger().warning("something is wrong")
    assert "something is wrong" in told.getvalue()
