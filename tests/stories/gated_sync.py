"""A library that makes fdatasync hang in the processes that load it, for as long as a file is there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
int fdatasync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    while (access(getenv("HUNG_WHILE"), F_OK) == 0) usleep(1000);
    return real(file);
}
"""
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is missing: NO HUNG SYNC IS TESTED, install it")


class GatedSync:
    """Built in its own folder; a process whose environment has `environ` syncs only while the gate is open."""

    def __init__(self, folder: Path) -> None:
        source, library = folder / "gate.c", folder / "gate.so"
        source.write_text(SOURCE)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        self._gate = folder / "hung"
        self.environ = {"LD_PRELOAD": str(library), "HUNG_WHILE": str(self._gate)}

    def shut(self) -> None:
        self._gate.touch()

    def open(self) -> None:
        self._gate.unlink(missing_ok=True)
