"""A real agent process under the test's control, beside the node it works for."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from tests.stories.forked_process import RunningProcess, start_program

WITHIN_S = 60.0
REGISTERED = b" at stake"
"""What an agent says when its node has told it how it stands, active or not."""


class AgentProcess:
    """`holdfast agent` in its own process, logging beside its folder."""

    module: str | None = None
    """What runs instead of `holdfast`."""

    def __init__(self, data: Path, name: str, port: int, slots: int = 4) -> None:
        self.data, self.name, self.port, self.slots = data, name, port, slots
        self._process: RunningProcess | None = None
        self._before = 0
        """How long its log was when it was started."""

    def up(self) -> None:
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        words = ["agent", "--node", f"127.0.0.1:{self.port}", "--data", str(self.data)]
        words += ["--name", self.name, "--account", self.name, "--slots", str(self.slots), "--price", "3"]
        words += ["--model", "echo", "--model", "sleep"]
        log = self.data.parent / f"{self.name}.log"
        self._before = log.stat().st_size if log.exists() else 0
        self._process = start_program(words, log, module=self.module)

    def kill(self) -> None:
        """kill -9: no goodbye, no flush."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    async def stop(self) -> int:
        """Told to end; its line may run through this very loop, so nobody waits for it here.

        One that has only just been started would die of it: it is told when it has spoken with its node.
        """
        assert self._process is not None
        async with asyncio.timeout(WITHIN_S):
            while REGISTERED not in self._logged(self._before) and self._process.poll() is None:
                await asyncio.sleep(0.01)
        self._process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self._process.wait, WITHIN_S)

    async def ended(self) -> int:
        """It ends by itself: its exit code."""
        assert self._process is not None
        return await asyncio.to_thread(self._process.wait, WITHIN_S)

    def end(self) -> None:
        """Leave nothing running, whatever the test came to."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        return self._logged().decode()

    def _logged(self, after: int = 0) -> bytes:
        return (self.data.parent / f"{self.name}.log").read_bytes()[after:]
