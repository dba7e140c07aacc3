"""`holdfast` in a process of its own that is forked from one that has imported everything: no test waits for imports.

A story runs dozens of commands, and each would need a third of a second of the processor before its first line runs.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from holdfast.__main__ import main
from holdfast.cli import VERBS

FORKSERVER: Final = get_context("forkserver")
FORKSERVER.set_forkserver_preload(["holdfast.__main__", *(f"holdfast.cli.{verb}" for verb in VERBS)])
IN, OUT, ERR = "in", "out", "err"


def run_forked(words: Sequence[str], environ: Mapping[str, str], stdin: str, within_s: float) -> tuple[int, str, str]:
    """Its exit code and what it wrote to standard output and standard error."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / IN).write_text(stdin)
        process = FORKSERVER.Process(target=_run, args=(list(words), dict(environ), str(Path.cwd()), name))
        process.start()
        process.join(within_s)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutError(f"holdfast {' '.join(words)}: no end within {within_s:.0f} s")
        return process.exitcode, (folder / OUT).read_text(), (folder / ERR).read_text()


def _run(words: list[str], environ: dict[str, str], cwd: str, folder: str) -> None:
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(cwd)
    for fd, name in enumerate((IN, OUT, ERR)):
        opened = os.open(Path(folder, name), os.O_RDONLY if name == IN else os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, fd)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    sys.argv = ["holdfast", *words]
    main()
