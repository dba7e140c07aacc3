"""The wheel: it has every file of the package, and works in an environment that has never seen the sources."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from tests.deploy.deploy_files import ROOT

from holdfast import __version__

PACKAGE = ROOT / "src" / "holdfast"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
WITHIN_S = 240


def run(*command: object, cwd: Path) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTHON"))}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as a release is: in an environment of its own, with the build tools from the registry."""
    folder = tmp_path_factory.mktemp("wheel")
    run(*PIP, "wheel", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    ours = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if ".dist-info/" not in name} == ours
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert f"holdfast-{__version__}-py3-none-any.whl" == wheel.name


def test_it_works_where_the_sources_are_not(wheel: Path, tmp_path: Path) -> None:
    """The libraries are those of this environment, the package is the wheel's."""
    python = make_environment(tmp_path / "venv")
    run(*PIP, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    (purelib,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    libraries = Path(sysconfig.get_path("purelib"))
    (purelib / "libraries.pth").write_text(f"{libraries}\n")  # not their .pth files: the sources are not found by them
    check_installed(python, tmp_path)


@pytest.mark.full
def test_it_works_in_an_environment_that_has_nothing_but_it(wheel: Path, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "venv")
    run(*PIP, "--python", python, "install", "--constraint", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    check_installed(python, tmp_path)


def make_environment(folder: Path) -> Path:
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    return folder / "bin" / "python"


def check_installed(python: Path, folder: Path) -> None:
    """What a new user does first."""
    holdfast = python.parent / "holdfast"
    where = run(python, "-c", "import holdfast; print(holdfast.__file__)", cwd=folder).strip()
    assert Path(where).is_relative_to(folder), "not the sources"
    assert run(holdfast, "version", cwd=folder) == f"holdfast {__version__}\n"
    facts = run(holdfast, "version", "--verbose", cwd=folder)
    assert __version__ in facts
    assert "Python" in facts
    assert "run a node" in run(holdfast, "--help", cwd=folder)
    run(holdfast, "init", ".", cwd=folder)
    assert (folder / "holdfast.toml").exists()
    assert "not running" in run(holdfast, "doctor", "--data", folder / "holdfast-data", cwd=folder)
    program = "from holdfast.spool import Spool; print(Spool.open('c', 's', root='spools').emit('A', {}).wait(30))"
    assert run(python, "-c", program, cwd=folder) == "True\n"
