"""With the README alone: its commands, as they stand there, from an empty folder to a result verified offline."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.rules import ROOT
from tests.stories.node_process import HOLDFAST
from tests.stories.pages.page_commands import blocks, run_commands

README = ROOT / "README.md"


@pytest.mark.timeout(180)
@pytest.mark.rule("RES-008", "PRV-001", "JOB-006")
def test_the_readme_leads_from_nothing_to_ones_own_work_and_its_proof(tmp_path: Path) -> None:
    said = run_commands(README, tmp_path, {})
    assert "FAILED" not in "".join(said), "".join(said)
    _, start, provider, work, proof = said
    assert "all is well" in start
    assert re.search(r"COMPUTE +count +1 ", provider)
    assert work.split()[-1] == "6", "what `wc -w` counts"
    assert "chain of custody" in proof
    assert "true: " in proof


def test_every_block_of_the_readme_is_run_and_every_verb_in_it_exists() -> None:
    text = README.read_text("utf-8")
    assert len(blocks(README)) == 4
    listed = subprocess.run([str(HOLDFAST), "--help"], capture_output=True, text=True, check=True).stdout
    verbs = set(re.findall(r"^(?:HOLDFAST_TOKEN=\S+ |echo .*\| )?holdfast ([a-z]+)", text, flags=re.MULTILINE))
    assert {"init", "up", "agent", "job", "verify"} <= verbs
    assert {verb for verb in verbs if f"\n  {verb} " not in listed} == set()
