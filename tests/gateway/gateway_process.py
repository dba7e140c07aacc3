"""A real `holdfast gateway`, started, killed and started again on the same port."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

import httpx
from tests.loopback_ports import free_port
from tests.stories.forked_command import run_program
from tests.stories.forked_process import RunningProcess, start_program

UP_WITHIN_S: Final = 60.0


class GatewayProcess:
    """One data folder; the process may come and go."""

    def __init__(self, data: Path, **environment: str) -> None:
        self.data, self.port = data, free_port()
        self._environment = {**os.environ, "HOLDFAST_GATEWAY__PORT": str(self.port), **environment}
        self._process: RunningProcess | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of the same gateway."""
        return run_program("gateway", *words, "--data", self.data, environ=self._environment)

    def start(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        self._process = start_program(["gateway", "--data", str(self.data)], self.data / "log", self._environment)
        until = time.monotonic() + UP_WITHIN_S
        while time.monotonic() < until:
            assert self._process.poll() is None, (self.data / "log").read_text("utf-8")[-2_000:]
            try:
                if httpx.get(f"{self.url}/health", timeout=5, verify=False).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.02)
        raise AssertionError((self.data / "log").read_text("utf-8")[-2_000:])

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """As an operator stops it; its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(number)
        code = self._process.wait(60)
        self._process = None
        return code
