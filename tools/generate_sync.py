"""Makes the blocking client from the asynchronous one: `python tools/generate_sync.py`, or `make client`.

Words are replaced, nothing is decided: what is written with `await` is the same without it. `--check` says whether the
committed files are what it would make.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
SOURCE: Final = ROOT / "src/holdfast/client/asynchronous"
TARGET: Final = ROOT / "src/holdfast/client/synchronous"
HEADER: Final = "# Made from asynchronous/{name} by tools/generate_sync.py: change that file, then run `make client`.\n"
REPLACED: Final = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__aenter__\b", "__enter__"),
    (r"\b__aexit__\b", "__exit__"),
    (r"\baclosing\b", "closing"),
    (r"\baclose\b", "close"),
    (r"\baiter_raw\b", "iter_raw"),
    (r"\baread\b", "read"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"^import asyncio\n(?=import time\n)", ""),
    (r"^import asyncio\n(?=(?:.*\n)*?import time\n)", ""),
    (r"^import asyncio$", "import time"),
    (r"\bAsyncGenerator\[(.*), None\]", r"Generator[\1, None, None]"),
    (r"\bAsyncGenerator\b", "Generator"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"holdfast\.client\.asynchronous", "holdfast.client.synchronous"),
)


def generate(name: str, source: str) -> str:
    """The blocking twin of a module."""
    if name == "__init__.py":
        return '"""The blocking client: made by `tools/generate_sync.py` from the asynchronous one."""\n'
    for pattern, words in REPLACED:
        source = re.sub(pattern, words, source, flags=re.MULTILINE)
    return HEADER.format(name=name) + source


def formatted(source: str, name: str) -> str:
    ruff = [sys.executable, "-m", "ruff"]
    stdin = ["--stdin-filename", str(TARGET / name), "-"]
    fixed = subprocess.run(  # noqa: S603
        [*ruff, "check", "--select", "I,F401", "--fix", "--quiet", *stdin],
        input=source, capture_output=True, text=True, check=True, cwd=ROOT,
    ).stdout  # fmt: skip
    return subprocess.run(  # noqa: S603
        [*ruff, "format", "--quiet", *stdin], input=fixed, capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout


def main() -> int:
    """Write the files; with --check name those that differ."""
    wanted = {path.name: formatted(generate(path.name, path.read_text()), path.name) for path in SOURCE.glob("*.py")}
    stale = [
        name for name, text in wanted.items() if not (TARGET / name).exists() or (TARGET / name).read_text() != text
    ]
    stale += [path.name for path in TARGET.glob("*.py") if path.name not in wanted]
    if "--check" in sys.argv[1:]:
        print("\n".join(f"{name}: run `make client`" for name in sorted(stale)) or "the blocking client is up to date")
        return 1 if stale else 0
    TARGET.mkdir(exist_ok=True)
    for name in stale:
        if name in wanted:
            (TARGET / name).write_text(wanted[name])
        else:
            (TARGET / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
