"""With docs/how-to/production.md alone: a production network from an empty folder to a paid job and its proof."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.rules import ROOT
from tests.stories.pages.page_commands import run_commands

PAGE = ROOT / "docs/how-to/production.md"


@pytest.mark.timeout(180)
@pytest.mark.rule("ESC-003", "PRV-001", "RES-008", "RES-009")
def test_a_production_network_pays_for_a_job_at_the_first_try(tmp_path: Path) -> None:
    before, start, treasurer, deposits, provider, job, proof = run_commands(PAGE, tmp_path, {})
    everything = "".join((before, start, treasurer, deposits, provider, job, proof))
    assert "FAILED" not in everything, everything
    assert re.findall(r"^(\d+) deposited for (\w+) ", deposits, re.M) == [("1000", "alice"), ("10000", "oak")]
    assert "oak has 10000 at stake" in provider
    assert re.search(r"AI +echo +1 ", provider)
    assert "paid work" in job
    rows = [line.split(",") for line in job.splitlines() if line.count(",") == 5]
    assert [(row[1], row[4]) for row in rows[1:]] == [("job", "-1"), ("deposit", "1000")]
    assert "true: " in proof
    assert (tmp_path / "output.txt").read_bytes() == b"paid work"
