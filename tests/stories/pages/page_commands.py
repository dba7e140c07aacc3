"""The commands of a page, run as they stand there: blocks that say `bash`, as one script, in an empty folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import suppress
from itertools import count
from pathlib import Path

from tests.loopback_ports import free_port
from tests.stories.node_process import HOLDFAST

WITHIN_S = 120
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.DOTALL | re.MULTILINE)
"""Only blocks that say `bash` are run; the others show what one sees."""
READY = """until [ "$(grep -sc ' listening ' node.log)" = {} ]; do kill -0 $NODE || break; sleep 0.05; done"""
LISTED = "for _ in $(seq 300); do holdfast job list --wide | grep -q $TASK && break; done"
SEALED = "for _ in $(seq 300); do holdfast chain head | grep -q ' 0 transactions so far' && break; done"
"""What a newcomer does by looking at the clock, the test does by looking at the node."""
FOLLOWED = r"curl -sN --max-time 2 (.*) \|\| true"
UNTIL_BOTH = r"grep -m 3 -e '^retry: ' -e '^event: jobAdmitted' < <(curl -sN --max-time 60 \1)"
"""How a stream begins, and both jobs; whoever looks at the clock instead may see less on a busy machine."""
CHAIN = {"HOLDFAST_POLICY__CHAIN__BLOCK_MS": "3000", "HOLDFAST_POLICY__CHAIN__FINALITY_DEPTH": "900"}
"""Like a newcomer's, only that a slow machine takes nothing away from it."""


def blocks(page: Path) -> list[str]:
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
