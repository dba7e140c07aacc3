"""With docs/tutorial.md alone: from an empty folder to a chain that is verified without a node."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from tests.rules import ROOT
from tests.storage.stores import Place
from tests.stories.node_process import on_postgres
from tests.stories.pages.page_commands import run_commands

TUTORIAL = ROOT / "docs/tutorial.md"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="the tutorial uses curl")


@pytest.mark.timeout(180)
@pytest.mark.rule("RPC-001", "SEC-001", "CHN-001", "CHN-003", "CHN-006", "JOB-002", "JOB-006", "EVT-001")
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
def test_the_tutorial_leads_from_nothing_to_a_chain_that_is_verified_without_a_node(place: Place, store: str) -> None:
    environ = on_postgres(place.address) if store == "postgres" else {}
    said = run_commands(TUTORIAL, place.folder, environ)
    assert "FAILED" not in "".join(said), "".join(said)
    _, start, key, job, receipt, events, back, check = said
    assert "all is well" in start
    assert "my laptop" in key
    assert '"caller":"alice"' in job
    task = next(word for word in receipt.split() if len(word) == 64)
    assert re.search(rf"{task[:12]} +AI +QUEUED +alice +100 ", job)
    assert "admitted in block" in receipt
    assert re.search(r"available +800$", receipt, re.M)
    assert re.search(r"held +200$", receipt, re.M)
    told, streamed = events.split("retry: 2000", 1)
    lines = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert [line["type"] for line in lines] == ["ownershipTaken", "feeRaised"]
    assert lines[1]["event"]["jobId"] == task
    assert streamed.count("event: jobAdmitted") == 2
    assert f"in the open block again: jobCancelled {task}" in back
    assert f"the refund of job {task}: applied again in the open block" in back
    assert "HEIGHT  STATUS" in back
    assert re.search(r"computed again, [1-9]\d* orphaned", check)
    assert re.search(r"valid: \d+ blocks? of chain 1337, \d+ transactions?, every link and signature is valid", check)
    assert f"true: admission of {task}" in check
    assert check.count(", which you trust") == 2
