"""With the README alone: its commands, as they stand there, from an empty folder to a chain verified without a node."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from tests.loopback_ports import free_port
from tests.rules import ROOT
from tests.storage.stores import Place
from tests.stories.node_process import HOLDFAST, on_postgres

WITHIN_S = 120
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.DOTALL | re.MULTILINE)
"""Only blocks that say `bash` are run; the others show what one sees."""
READY = """until [ "$(grep -sc ' listening ' node.log)" = {} ]; do kill -0 $NODE || break; sleep 0.05; done"""
LISTED = "for _ in $(seq 300); do holdfast job list | grep -q $TASK && break; done"
SEALED = "for _ in $(seq 300); do holdfast chain head | grep -q ' 0 transactions so far' && break; done"
"""What a newcomer does by looking at the clock, the test does by looking at the node."""
FOLLOWED = r"curl -sN --max-time 2 (.*) \|\| true"
UNTIL_BOTH = r"grep -m 3 -e '^retry: ' -e '^event: jobAdmitted' < <(curl -sN --max-time 60 \1)"
"""How a stream begins, and both jobs; whoever looks at the clock instead may see less on a busy machine."""
CHAIN = {"HOLDFAST_POLICY__CHAIN__BLOCK_MS": "3000", "HOLDFAST_POLICY__CHAIN__FINALITY_DEPTH": "900"}
"""Like a newcomer's, only that a slow machine takes nothing away from it."""

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="the README uses curl")


README = ROOT / "README.md"


def blocks(page: Path = README) -> list[str]:
    """The commands of a page, block by block."""
    return BLOCK.findall(page.read_text("utf-8"))


def script(page: Path, ports: tuple[int, int]) -> str:
    """The same as one script that says where each block begins and which command failed."""
    parts, lives = ["trap 'echo \"FAILED ($?): $BASH_COMMAND\"' ERR\n"], count(1)
    for number, block in enumerate(blocks(page)):
        text = block.replace("holdfast init", f"holdfast init --http {ports[0]} --grpc {ports[1]}")
        text = text.replace(":8451", f":{ports[0]}").replace(":8452", f":{ports[1]}")
        text = re.sub(r"^holdfast up .*$", lambda up: f"{up[0]}\n{READY.format(next(lives))}", text, flags=re.MULTILINE)
        text = re.sub(r"^(.*holdfast job list .*)$", rf"{LISTED}\n\1", text, flags=re.MULTILINE)
        text = re.sub(r"^sleep .*$", SEALED, text, flags=re.MULTILINE)
        text = re.sub(FOLLOWED, UNTIL_BOTH, text)
        parts.append(f'echo "BLOCK {number}"\n{text}')
    return "".join(parts)


def run_commands(page: Path, folder: Path, environ: dict[str, str]) -> list[str]:
    """What each block printed; nothing that it started goes on."""
    path = f"{HOLDFAST.parent}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.Popen(
        ["bash", "-c", script(page, (free_port(), free_port()))],
        cwd=folder,
        env=os.environ | {"PATH": path} | CHAIN | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = run.communicate(timeout=WITHIN_S)
    finally:
        with_its_children(run.pid)
        run.wait()
    return re.split(r"^BLOCK \d+\n", said, flags=re.MULTILINE)


def with_its_children(group: int) -> None:
    with suppress(ProcessLookupError):  # all have ended by themselves, as they should
        os.killpg(group, signal.SIGKILL)


@pytest.mark.timeout(180)
@pytest.mark.rule("RPC-001", "SEC-001", "CHN-001", "CHN-003", "CHN-006", "JOB-002", "JOB-006", "EVT-001")
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
def test_the_readme_leads_from_nothing_to_a_chain_that_is_verified_without_a_node(place: Place, store: str) -> None:
    environ = on_postgres(place.address) if store == "postgres" else {}
    said = run_commands(README, place.folder, environ)
    assert "FAILED" not in "".join(said), "".join(said)
    _, start, provider, work, proof, key, job, receipt, events, back, check = said
    assert re.search(r"COMPUTE +count +1 ", provider)
    assert work.split()[-1] == "6", "what `wc -w` counts"
    assert "chain of custody" in proof
    assert "true: " in proof
    assert "all is well" in start
    assert "my laptop" in key
    assert '"caller":"alice"' in job
    task = next(word for word in receipt.split() if len(word) == 64)
    assert re.search(rf"{task} +AI +QUEUED +alice +100 ", job)
    shown, account = receipt.split("{\n", 1)
    assert "admitted in block" in shown
    assert json.loads("{" + account) == {"owner": "alice", "available": 800, "held": 200, "pending": 0}
    told, streamed = events.split("retry: 2000", 1)
    lines = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert [line["type"] for line in lines] == ["ownershipTaken", "feeRaised"]
    assert lines[1]["event"]["id"] == task
    assert streamed.count("event: jobAdmitted") == 2
    assert f"in the open block again: jobCancelled {task}" in back
    assert f"the refund of job {task}: applied again in the open block" in back
    assert "HEIGHT  STATUS" in back
    assert re.search(r"computed again, [1-9]\d* orphaned", check)
    assert re.search(r"valid: \d+ blocks? of chain 1337, \d+ transactions?, every link and signature is valid", check)
    assert f"true: admission of {task}" in check
    assert check.count(", which you trust") == 2


def test_every_block_of_the_readme_is_run_and_every_verb_in_it_exists() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(blocks()) == 10
    listed = subprocess.run([str(HOLDFAST), "--help"], capture_output=True, text=True, check=True).stdout
    verbs = set(re.findall(r"^(?:HOLDFAST_TOKEN=\S+ |echo .*\| )?holdfast ([a-z]+)", text, flags=re.MULTILINE))
    assert {"init", "up", "key", "job", "events", "chain"} <= verbs
    assert {verb for verb in verbs if f"\n  {verb} " not in listed} == set()
