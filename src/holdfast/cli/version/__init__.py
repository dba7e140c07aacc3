"""`holdfast version`: which version this is, and with `--verbose` everything a bug report needs and no secret."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast import __version__
from holdfast.cli import make_app

app = make_app()
NOT_INSTALLED: Final = "not installed"
GIB: Final = 1 << 30
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


@app.command(example="holdfast version --verbose > report.txt")
def version(
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also Python, system, libraries: what a bug report needs.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the version. With --verbose no host name, no path of yours, no setting and no secret is shown."""
    facts = {"holdfast": __version__, **(_describe_installation() if verbose else {})}
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        print(f"{name} {value}" if not verbose else f"{name:<24} {value}")


def _describe_installation() -> dict[str, str]:
    import ssl  # noqa: PLC0415 - only here

    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "distribution": _distribution_name(),
        "libc": " ".join(platform.libc_ver()).strip() or "unknown",
        "container": "yes" if _is_container() else "no",
        "processors": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / GIB:.1f} GiB",
        "encoding": f"{sys.getfilesystemencoding()}, standard output {sys.stdout.encoding}",
        "openssl": ssl.OPENSSL_VERSION,
        **dict(_libraries()),
    }


def _libraries() -> Iterator[tuple[str, str]]:
    """What Holdfast depends on, extras included, each with its version."""
    try:
        required = distribution("holdfast").requires or []
    except PackageNotFoundError:  # run from a folder of sources
        return
    for name in sorted({match[0].lower() for each in required if (match := _NAME.match(each))}):
        try:
            yield name, version_of(name)
        except PackageNotFoundError:
            yield name, NOT_INSTALLED


def _distribution_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "unknown")
    except OSError:
        return "unknown"


def _is_container() -> bool:
    return Path("/run/.containerenv").exists() or Path("/.dockerenv").exists()
