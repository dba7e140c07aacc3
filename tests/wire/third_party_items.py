"""arbundles, the library that most programs use for items: installed once, into a cache beside the user's others."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

SCRIPT: Final = Path(__file__).parent / "arbundles.cjs"
PACKAGE: Final = "@dha-team/arbundles@1.0.4"
NOT_TESTED: Final = "ITEMS ARE NOT CHECKED BY A THIRD PARTY'S TOOLS"


def install_arbundles() -> Path:
    """The folder that has it; the test is skipped where npm is missing or cannot install it."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip(f"there is no npm: {NOT_TESTED}")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast-tests"
    folder = cache / PACKAGE.replace("/", "-").removeprefix("@")
    folder.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers of the run wait for it
        if not (folder / "ready").exists():
            _install(npm, folder)
            (folder / "ready").touch()
    return folder


def _install(npm: str, folder: Path) -> None:
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1", "--prefix", str(folder)]
    try:
        done = subprocess.run(
            [npm, "install", *options, PACKAGE], capture_output=True, timeout=240, check=False, text=True
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm does not answer: {NOT_TESTED}")
    if done.returncode:
        pytest.skip(f"npm cannot install {PACKAGE}: {NOT_TESTED}: {done.stderr[-200:]!r}")


def third_party_ids(items: Sequence[bytes]) -> list[str]:
    """What arbundles makes of each item: its id, or "invalid"."""
    text, folder = "\n".join(item.hex() for item in items), install_arbundles()
    done = subprocess.run(["node", SCRIPT, folder], input=text, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.split()
