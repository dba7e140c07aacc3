"""The example of a contract runs, and shows what it says: asked, settled once, refused the second time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "contract.py"


@pytest.mark.rule("JOB-004", "RES-005")
def test_a_contract_asks_reads_and_uses_a_result_once_through_host_calls() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    asked, settled, again = done.stdout.splitlines()
    assert asked.startswith("asked: task ")
    assert settled.startswith("settled: result ")
    assert again == "settled again: AlreadyConsumed"
