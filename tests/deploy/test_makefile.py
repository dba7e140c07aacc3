"""The two commands of the README: the demo installs what a node needs, the tests add what working on it needs."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from tests.deploy.deploy_files import ROOT


def installed_by(target: str, environment: Path) -> str:
    """What make would run for it where nothing is there yet."""
    command = ["make", "--dry-run", "--no-print-directory", f"VENV={environment}", target]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_demo_installs_the_node_with_its_archive_and_no_development_tools(tmp_path: Path) -> None:
    said = installed_by("demo", tmp_path / "venv")
    (extras,) = re.findall(r"--editable '\.\[([\w,]+)\]'", said)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert {"gateway", "blobs"} <= set(extras.split(",")) <= set(known)
    assert "--group" not in said
    assert said.rstrip().endswith("bin/holdfast demo")


@pytest.mark.parametrize("target", ["test", "setup"])
def test_the_tests_add_the_development_tools_to_the_same_environment(target: str, tmp_path: Path) -> None:
    said = installed_by(target, tmp_path / "venv")
    assert said.index("--editable") < said.index("--group dev")
    assert said.count("-m venv") == 1
