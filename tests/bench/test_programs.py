"""Every program of the measurements runs: its tables are printed, saved and drawn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bench.__main__ import PROGRAMS

from bench import measure

ROOT = Path(__file__).parents[2]
PATIENCE_S = 900.0


@pytest.mark.full
@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_saves_and_draws_its_tables(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", name, "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    report = measure.load(tmp_path / f"{name}-quick.json")
    assert report.program == name
    assert report.tables
    for table in report.tables:
        assert all(row.figures for row in table.rows), table.name
        assert f"{table.title} [{table.unit}]" in done.stdout
        assert (tmp_path / "quick" / f"{table.name}.svg").stat().st_size
    names = [table.name for table in report.tables]
    assert len(set(names)) == len(names)


def test_every_program_is_described_in_the_readme() -> None:
    text = (ROOT / "bench" / "README.md").read_text("utf-8")
    assert [name for name in PROGRAMS if f"| `{name}` |" not in text] == []
