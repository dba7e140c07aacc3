"""Which peers can take part: they are optional, and a table names those that are missing with the reason.

Python's are the dependency group `bench` of pyproject.toml. `make peers` installs it into an environment of its own, so
that Holdfast is measured with what its users have.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")
ROOT = Path(__file__).parent.parent
PYTHON = ROOT / ".venv-peers" / "bin" / "python"
NODE_HOME = ROOT / ".venv-peers" / "node"
"""Where npm has put the peers that run on Node."""
_FIND = "import sys, importlib.util as u; print(*[name for name in sys.argv[1:] if u.find_spec(name) is None])"


class PeerFailed(Exception):
    """A peer's process ended with an error, or too late."""


@cache
def why_not_installed(*modules: str) -> str | None:
    """What is missing; None if all of them can be imported."""
    if not PYTHON.exists():
        return "not installed; make peers does it"
    found = subprocess.run([PYTHON, "-c", _FIND, *modules], capture_output=True, text=True, check=True)
    missing = " and ".join(found.stdout.split())
    return f"{missing} not installed; make peers does it" if missing else None


def why_not_on_node(package: str) -> str | None:
    if shutil.which("node") is None:
        return "there is no Node here"
    if not (NODE_HOME / "node_modules" / package).is_dir():
        return "not installed; make peers does it where there is npm"
    return None


@cache
def versions(*packages: str) -> str:
    """Of Python's peers, as installed."""
    ask = "import sys, importlib.metadata as m; print(', '.join(f'{n} {m.version(n)}' for n in sys.argv[1:]))"
    return subprocess.run([PYTHON, "-c", ask, *packages], capture_output=True, text=True, check=True).stdout.strip()


def python_module(name: str, *words: object) -> list[str]:
    return [str(PYTHON), "-m", name, *map(str, words)]


async def run_peer(command: Sequence[str], shape: type[T], patience_s: float, cwd: Path = ROOT) -> T:
    """What a peer's process has printed as its last line."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, cwd=cwd)
    try:
        async with asyncio.timeout(patience_s):
            told, faults = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise PeerFailed(f"no answer within {patience_s:g} s") from None
    if process.returncode != 0:
        last = faults.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        raise PeerFailed(last[0])
    return msgspec.json.decode(told.splitlines()[-1], type=shape)
