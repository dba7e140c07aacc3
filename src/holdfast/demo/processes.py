"""The demo's own processes: started here and ended here by their handle; nothing else is ever signalled.

Each has a session of its own, so that Ctrl-C in the terminal reaches only the demo, which then ends them in order.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from holdfast.config import Config

STOP_TIMEOUT_S, STOP_WITHOUT_NODE_S = 20.0, 2.0
RUN_TIMEOUT_S: Final = 60.0
WORK_STREAM_LOG: Final = b"work_stream_open"
HOLDFAST: Final = (sys.executable, "-m", "holdfast")


class DemoFailed(Exception):
    """The demo cannot continue; its message is for the user."""


class DemoProcesses:
    """Processes by name. Leaving the `with` block ends all that still run, except detached ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._log_offsets: dict[str, int] = {}
        """Where in its log each process started."""

    def __enter__(self) -> DemoProcesses:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """The node is stopped last: stopping agents deliver to it. Without a node they would only wait."""
        within_s = STOP_TIMEOUT_S if "node" in self._running else STOP_WITHOUT_NODE_S
        for names in ([name for name in self._running if name != "node"], ["node"]):
            running = [name for name in names if name in self._running]
            for name in running:
                if self._running[name].poll() is None:
                    self._running[name].terminate()
            for name in running:
                self._wait(name, within_s)

    def start_node(self, config: Config, settings: Mapping[str, object]) -> int:
        """`settings` are those that differ from the defaults, by their names."""
        command = [*HOLDFAST, "up", "--data", str(config.data), "--store", config.store]
        postgres = config.postgres
        secret = {"HOLDFAST_POSTGRES__DSN": postgres.dsn.reveal()} if postgres.dsn is not None else {}
        database = {"postgres.schema": postgres.schema, "postgres.allow_unsafe": postgres.allow_unsafe}
        return self._start("node", command, secret | _settings_as_environ(database | dict(settings)))

    def start_agent(self, name: str, node: str, models: Sequence[str], command: str) -> int:
        """A provider with one slot and an account of its own name; its folder is beside the node's."""
        address = ["--node", node, "--data", str(self._folder / name)]
        provider = ["--name", name, "--account", name, "--slots", "1", "--price", "3"]
        offers = ["--exec", command, "--circuits", *(word for model in models for word in ("--model", model))]
        return self._start(name, [*HOLDFAST, "agent", *address, *provider, *offers])

    def start_gateway(self, settings: Mapping[str, object]) -> int:
        """An archive in a folder of its own; `settings` are those that differ from the defaults, by their names."""
        command = [*HOLDFAST, "gateway", "serve", "--data", str(self._folder / "archive")]
        return self._start("gateway", command, _settings_as_environ(settings))

    def has_work_stream(self, name: str) -> bool:
        """Whether an agent has connected to its node since it was started."""
        return WORK_STREAM_LOG in self._log(name).read_bytes()[self._log_offsets[name] :]

    def kill(self, name: str) -> int:
        """kill -9: nothing is flushed. Returns the process id."""
        child = self._running.pop(name)
        child.kill()
        if child.wait() != -signal.SIGKILL:
            raise DemoFailed(f"{name} had ended by itself with code {child.returncode}\n{self._log_tail(name)}")
        return child.pid

    def stop(self, name: str) -> None:
        """Stop it with SIGTERM; it must exit with code 0."""
        self._running[name].terminate()
        if (code := self._wait(name)) != 0:
            raise DemoFailed(f"{name} ended with code {code}\n{self._log_tail(name)}")

    def others(self) -> list[str]:
        """Processes besides the node and the agents."""
        return [name for name in self._running if name == "gateway"]

    def detach(self, name: str) -> int:
        """Leave it running after the demo ends."""
        child = self._running.pop(name)
        child.returncode = 0  # so that Python does not warn about a running child
        return child.pid

    def check_alive(self) -> None:
        for name, child in self._running.items():
            if child.poll() is not None:
                raise DemoFailed(f"{name} ended by itself with code {child.returncode}\n{self._log_tail(name)}")

    def run(self, *words: str, settings: Mapping[str, object] | None = None) -> subprocess.CompletedProcess[bytes]:
        """Run one of the product's own commands to its end."""
        environ = {**_environ_without_settings(), "NO_COLOR": "1", **_settings_as_environ(settings or {})}
        command = [*HOLDFAST, *words]
        return subprocess.run(  # noqa: S603 - our own program
            command, cwd=self._folder, env=environ, capture_output=True, check=False, timeout=RUN_TIMEOUT_S
        )

    def _start(self, name: str, command: list[str], settings: Mapping[str, str] | None = None) -> int:
        with self._log(name).open("ab") as log:
            self._log_offsets[name] = log.tell()
            self._running[name] = subprocess.Popen(  # noqa: S603 - our own program
                command,
                cwd=self._folder,
                env={**_environ_without_settings(), "NO_COLOR": "1", **(settings or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self._running[name].pid

    def _wait(self, name: str, within_s: float = STOP_TIMEOUT_S) -> int:
        child = self._running.pop(name)
        try:
            return child.wait(within_s)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _log_tail(self, name: str) -> str:
        lines = self._log(name).read_text("utf-8", errors="replace").splitlines()[-8:]
        return "\n".join([f"the end of {self._log(name)}:", *lines])


def _environ_without_settings() -> dict[str, str]:
    """The demo's processes must not use the user's settings."""
    return {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}


def _settings_as_environ(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings by name as environment variables."""
    return {f"HOLDFAST_{name.replace('.', '__').upper()}": f"{value}" for name, value in settings.items()}
