"""The demo's own processes: started here, ended here by their handle, and nothing else is ever signalled.

Each is in a session of its own, so that Ctrl-C in the terminal reaches the demo alone, which then ends them in order.
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

STOP_S, ALONE_S = 20.0, 2.0
RUN_S: Final = 60.0
AT_WORK: Final = b"work stream open"
HOLDFAST: Final = (sys.executable, "-c", "from holdfast.cli import main; main()")


class Trouble(Exception):
    """The demo cannot go on; what it says is for the user."""


class Children:
    """Processes by name. Leaving the `with` block ends all that still run, except those let go."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._begun: dict[str, int] = {}
        """Where in its log each of them began."""

    def __enter__(self) -> Children:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """The node last: agents that stop still have something to tell it. Without a node they could only wait."""
        within_s = STOP_S if "node" in self._running else ALONE_S
        for names in ([name for name in self._running if name != "node"], ["node"]):
            running = [name for name in names if name in self._running]
            for name in running:
                if self._running[name].poll() is None:
                    self._running[name].terminate()
            for name in running:
                self._wait(name, within_s)

    def start_node(self, config: Config, settings: Mapping[str, object]) -> int:
        """`settings` are those that differ from what a node does by itself, by their names."""
        command = [*HOLDFAST, "up", "--data", str(config.data), "--store", config.store]
        told = config.postgres
        secret = {"HOLDFAST_POSTGRES__DSN": told.dsn.reveal()} if told.dsn is not None else {}
        place = {"postgres.schema": told.schema, "postgres.allow_unsafe": told.allow_unsafe}
        return self._start("node", command, secret | _environ(place | dict(settings)))

    def start_agent(self, name: str, node: str, models: Sequence[str]) -> int:
        """A provider with one slot, paid to an account of its own name; its folder is beside the node's."""
        place = ["--node", node, "--data", str(self._folder / name)]
        who = ["--name", name, "--account", name, "--slots", "1", "--price", "3"]
        offers = ["--circuits", *(word for model in models for word in ("--model", model))]
        return self._start(name, [*HOLDFAST, "agent", *place, *who, *offers])

    def is_at_work(self, name: str) -> bool:
        """Whether an agent has spoken with its node since it was started."""
        return AT_WORK in self._log(name).read_bytes()[self._begun[name] :]

    def kill(self, name: str) -> int:
        """kill -9: no goodbye, nothing flushed. Returns whom it hit."""
        child = self._running.pop(name)
        child.kill()
        if child.wait() != -signal.SIGKILL:
            raise Trouble(f"{name} had ended by itself with code {child.returncode}\n{self._last_words(name)}")
        return child.pid

    def stop(self, name: str) -> None:
        """Ask it to finish; it must end well."""
        self._running[name].terminate()
        if (code := self._wait(name)) != 0:
            raise Trouble(f"{name} ended with code {code}\n{self._last_words(name)}")

    def let_go(self, name: str) -> int:
        """It runs on without us."""
        child = self._running.pop(name)
        child.returncode = 0  # ours no more: no warning that it still runs
        return child.pid

    def check_alive(self) -> None:
        for name, child in self._running.items():
            if child.poll() is not None:
                raise Trouble(f"{name} ended by itself with code {child.returncode}\n{self._last_words(name)}")

    def run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        """One of the product's own commands, to its end, with what it said."""
        environ = {**_others(), "NO_COLOR": "1"}
        command = [*HOLDFAST, *words]
        return subprocess.run(  # noqa: S603 - our own program
            command, cwd=self._folder, env=environ, capture_output=True, check=False, timeout=RUN_S
        )

    def _start(self, name: str, command: list[str], settings: Mapping[str, str] | None = None) -> int:
        with self._log(name).open("ab") as log:
            self._begun[name] = log.tell()
            self._running[name] = subprocess.Popen(  # noqa: S603 - our own program
                command,
                cwd=self._folder,
                env={**_others(), "NO_COLOR": "1", **(settings or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self._running[name].pid

    def _wait(self, name: str, within_s: float = STOP_S) -> int:
        child = self._running.pop(name)
        try:
            return child.wait(within_s)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _last_words(self, name: str) -> str:
        words = self._log(name).read_text("utf-8", errors="replace").splitlines()[-8:]
        return "\n".join([f"the end of {self._log(name)}:", *words])


def _others() -> dict[str, str]:
    """Neither the user's settings nor a holdfast.toml of the working directory belong to the demo's processes."""
    return {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}


def _environ(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings by name as the environment has them."""
    return {f"HOLDFAST_{name.replace('.', '__').upper()}": f"{value}" for name, value in settings.items()}
