"""The laws can fail: each seeded fault of the spool is seen, by the law that is named beside it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.counts import FULL
from tests.spool.crash.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[3]


def seeded(mutant: Mutant, copy: Path) -> None:
    """A copy of the package with this fault in it."""
    shutil.copytree(ROOT / "src" / "holdfast", copy, ignore=shutil.ignore_patterns("__pycache__", "gen"))
    changes = [(mutant.file, old, new) for old, new in mutant.changes]
    for name, old, new in [*changes, *([mutant.also] if mutant.also else [])]:
        file = copy / "spool" / name
        source = file.read_text()
        assert source.count(old) == 1, f"the source has changed: mend the mutant ({name}: {old!r})"
        file.write_text(source.replace(old, new))


def law_broken(package: Path, history: str) -> str:
    """What the laws say of this package; empty where they all hold."""
    command = [sys.executable, "-m", "tests.spool.crash.prove", history]
    environ = os.environ | {"PYTHONPATH": str(package.parent)}
    run = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode in (0, 1), run.stderr
    assert not run.stderr, run.stderr
    return run.stdout.partition(": ")[0].strip()


CHOSEN = MUTANTS if FULL else MUTANTS[::2]
"""Every day half of them, all in `make test-all`: each costs a process of its own."""


@pytest.mark.rule("SP-002", "SP-ACK-001", "SP-RET-002", "SP-CRASH-002", "SP-CRASH-003")
@pytest.mark.parametrize("mutant", CHOSEN, ids=[re.sub(r"\W+", "-", mutant.says) for mutant in CHOSEN])
def test_a_seeded_fault_is_seen_by_its_law(mutant: Mutant, tmp_path: Path) -> None:
    package = tmp_path / "holdfast"
    seeded(mutant, package)
    assert law_broken(package, mutant.seen_in) == mutant.law


@pytest.mark.parametrize("history", ["plain: faults in oE", "plain: crashes in oBHX", "segments: crashes in oBH"])
def test_without_a_fault_all_laws_hold(history: str) -> None:
    assert law_broken(ROOT / "src" / "holdfast", history) == ""
