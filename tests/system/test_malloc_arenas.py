"""How many heaps of the C library the threads of a process use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.system.malloc_arenas import ARENAS_MAX

THREADS = 6
NODE = """
import sys
from pathlib import Path
from holdfast.app.node import Node
from holdfast.config import Config
node = Node(Config(data=Path(sys.argv[1])))
"""
ALONE = "from holdfast.system.malloc_arenas import limit_malloc_arenas; limit_malloc_arenas()"
ALLOCATE = f"""
import ctypes, os, threading
libc, met = ctypes.CDLL(None), threading.Barrier({THREADS})
def allocate():
    kept = libc.malloc(10_000)
    met.wait()
threads = [threading.Thread(target=allocate) for _ in range({THREADS})]
for each in threads: each.start()
for each in threads: each.join()
libc.fdopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
os._exit(0)
"""


@pytest.mark.rule("ENG-004")
@pytest.mark.skipif(sys.platform != "linux", reason="the limit is glibc's")
@pytest.mark.parametrize(
    ("begin", "setting", "heaps"),
    [(NODE, {}, ARENAS_MAX), (ALONE, {}, ARENAS_MAX), (ALONE, {"MALLOC_ARENA_MAX": "1"}, 1)],
    ids=["a node", "any process", "as the environment says"],
)
def test_threads_share_a_few_heaps(tmp_path: Path, begin: str, setting: dict[str, str], heaps: int) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"} | setting
    command = [sys.executable, "-c", begin + "\n" + ALLOCATE, str(tmp_path)]
    told = subprocess.run(command, env=environ, capture_output=True, check=True, text=True)
    assert told.stdout.count("<heap nr=") == heaps
