"""The example that the documentation shows runs, and shows what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "outbox.py"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spool.md"


@pytest.mark.rule("SP-002", "SP-CRASH-001")
def test_a_standalone_user_loses_nothing_through_kill_9() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "killed 5 times, nothing lost"


def test_the_twenty_lines_of_the_page_run_as_they_stand(tmp_path: Path) -> None:
    code = PAGE.read_text("utf-8").split("```python\n")[1].split("```")[0]
    assert len(code.splitlines()) <= 20
    for _ in range(2):  # a first start, and a restart
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
