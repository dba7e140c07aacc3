"""`holdfast` in a process of its own that is forked from one that has imported everything: no story waits for imports.

A story starts dozens of processes, and a node with its children would need a second of the processor before it answers.
Its children are forked in the same way. `make test-all` and `make bench` start the real program instead, with all that
belongs to it.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from pathlib import Path
from runpy import run_module
from typing import Any, Final, NamedTuple

from tests.counts import FULL

from holdfast.__main__ import main
from holdfast.cli import VERBS

PROGRAM: Final = Path(sys.executable).parent / "holdfast"
FORKSERVER: Final = multiprocessing.get_context("forkserver")
LOADED_LATER: Final = (
    "google.protobuf.descriptor_pb2",
    "holdfast.adapters.blobs.blob_objects",
    "holdfast.adapters.postgres.journal",
    "holdfast.adapters.postgres.tables",
    "holdfast.adapters.sqlite.item_index",
    "holdfast.agent.runner",
    "holdfast.api.attestation",
    "holdfast.api.front.forwarder",
    "holdfast.api.grpc.server",
    "holdfast.api.grpc.server_front",
    "holdfast.api.grpc.services.evidence",
    "holdfast.api.grpc.services.node",
    "holdfast.api.grpc.services.provider",
    "holdfast.api.grpc.services.result",
    "holdfast.api.grpc.services.retrovue",
    "holdfast.api.http.server",
    "holdfast.app.node",
    "holdfast.app.projector_process",
    "holdfast.app.provider_agent",
    "holdfast.gateway.server",
    "typer._adapters",
)
"""What commands load only when they need it."""
BLOBS: Final = ("tests.stories.preloaded.trusted_setup",) if "PYTEST_XDIST_WORKER" in os.environ else ()
"""Where many stories run; one alone would only wait for it."""
FORKSERVER.set_forkserver_preload(
    ["holdfast.__main__", *(f"holdfast.cli.{verb}" for verb in VERBS), *LOADED_LATER, *BLOBS, __name__]
)
IS_FORKING: Final = not FULL and "PYTEST_VERSION" in os.environ
NEEDS_EXEC: Final = frozenset({"LD_PRELOAD"})
"""Variables of the environment that count only at a program's start."""


class Surroundings(NamedTuple):
    """What a process has from whoever starts it."""

    environ: Mapping[str, str]
    folder: str
    streams: tuple[str, str, str]
    """Files: standard input, output and error. What is written is appended."""

    def enter(self) -> None:
        gc.freeze()  # what was loaded before the fork stays shared: the collector never looks at it
        os.environ.clear()
        os.environ.update(self.environ)
        os.chdir(self.folder)
        for fd, name in enumerate(self.streams):
            opened = os.open(name, os.O_RDONLY if fd == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(opened, fd)
            os.close(opened)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
        forkserver._forkserver.ensure_running = lambda: None  # type: ignore[method-assign]  # it would start another one
        multiprocessing.get_context = lambda method=None: ForkedChildren(self)  # type: ignore[assignment]


class ForkedChildren:
    """What `multiprocessing` is for a forked process: its children are forked from the same one, as it was."""

    Pipe = FORKSERVER.Pipe

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings

    def Process(self, target: Callable[..., object], args: tuple[object, ...], **options: Any) -> Any:  # noqa: N802
        return FORKSERVER.Process(target=_call, args=(self._surroundings, target, args), **options)


class ForkedProcess:
    """As much of `subprocess.Popen` as stories need."""

    def __init__(self, words: Sequence[str], surroundings: Surroundings, module: str | None = None) -> None:
        """`holdfast` with these words, or this module as a program."""
        self._process = FORKSERVER.Process(target=_run, args=(surroundings, module, list(words)))
        self._process.start()
        Finalize(self, _kill_running, (self._process,), exitpriority=1)  # else who leaves one behind would wait for it
        self._lock = threading.Lock()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        with self._lock:  # who asks while another one waits would find its answer taken
            return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not wait([self._process.sentinel], timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        code = self.returncode
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _kill_running(process: BaseProcess) -> None:
    if process.exitcode is None:
        process.kill()


RunningProcess = ForkedProcess | subprocess.Popen[bytes]


def start_program(
    words: Sequence[str],
    log: Path,
    environ: Mapping[str, str] | None = None,
    *,
    module: str | None = None,
    out: Path | None = None,
) -> RunningProcess:
    """`holdfast`, or a module of the tests, in a process that reads nothing; standard output goes to the log, too,
    unless it has a file of its own."""
    environ = os.environ | dict(environ or {})
    if IS_FORKING and not NEEDS_EXEC & environ.keys():
        log.touch()  # who looks at once finds it, as it would be empty
        streams = (os.devnull, str(out or log), str(log))
        return ForkedProcess(words, Surroundings(environ, str(Path.cwd()), streams), module)
    program = [str(PROGRAM)] if module is None else [sys.executable, "-m", module]
    with (out or log).open("ab") as said, log.open("ab") as logged:
        return subprocess.Popen([*program, *words], stdin=subprocess.DEVNULL, stdout=said, stderr=logged, env=environ)


def _run(surroundings: Surroundings, module: str | None, words: list[str]) -> None:
    surroundings.enter()
    sys.argv = [module or "holdfast", *words]
    if module is None:
        main()
    else:
        run_module(module, run_name="__main__", alter_sys=True)


def _call(surroundings: Surroundings, target: Callable[..., object], args: tuple[object, ...]) -> None:
    surroundings.enter()
    target(*args)
