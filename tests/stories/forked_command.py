"""A command that runs to its end: what it wrote, and its exit code."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.stories.forked_process import IS_FORKING, PROGRAM, ForkedProcess, Surroundings

WITHIN_S = 120.0


def run_program(
    *words: object, environ: Mapping[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """`holdfast` with these words: forked every day, the real program in `make test-all`."""
    environ, told = os.environ if environ is None else environ, [*map(str, words)]
    if not IS_FORKING:
        command = [str(PROGRAM), *told]
        return subprocess.run(
            command, env=environ, input=stdin, capture_output=True, text=True, timeout=WITHIN_S, check=False
        )
    return subprocess.CompletedProcess(told, *run_forked(told, environ, stdin, WITHIN_S))


def run_forked(words: list[str], environ: Mapping[str, str], stdin: str, within_s: float) -> tuple[int, str, str]:
    """Its exit code and what it wrote to standard output and standard error."""
    with tempfile.TemporaryDirectory() as name:
        given, out, err = (Path(name, stream) for stream in ("in", "out", "err"))
        given.write_text(stdin)
        streams = str(given), str(out), str(err)
        process = ForkedProcess(words, Surroundings(dict(environ), str(Path.cwd()), streams))
        try:
            code = process.wait(within_s)
        except subprocess.TimeoutExpired as late:
            process.kill()
            process.wait()
            raise TimeoutError(f"holdfast {' '.join(words)}: no end within {within_s:.0f} s") from late
        return code, out.read_text(), err.read_text()
