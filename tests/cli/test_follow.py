"""`holdfast follow` and `holdfast validator` refuse what makes no sense, in one sentence, and leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.stories.forked_command import run_program

KEY = "ab" * 32


@pytest.mark.rule("SYN-001", "SEC-001")
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("run", "http://127.0.0.1:1"), 2, "--key"),
        (("run", "http://127.0.0.1:1", "--key", "abc"), 74, "lower-case hex"),
        (("run", "http://127.0.0.1:1", "--key", "abcd"), 74, "32 bytes"),
        (("run", "host:1", "--key", KEY), 75, "is no address"),
        (("run", "http://127.0.0.1:1", "--key", KEY, "--listen", "8650"), 75, "is no address"),
        (("run", "http://127.0.0.1:1", "--key", KEY, "--listen", "127.0.0.1:1"), 75, "--listen-token-file"),
        (("status",), 75, "does not exist"),
    ],
)
def test_bad_input_is_refused_and_creates_nothing(tmp_path: Path, words: tuple[str, ...], code: int, says: str) -> None:
    data = tmp_path / "follower"
    done = run_program("follow", *words, "--data", data)
    assert (done.returncode, says in done.stderr) == (code, True), done.stderr
    assert not data.exists()
