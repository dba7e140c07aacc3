"""A real node process under the test's control: started, paused, killed, and asked how it died."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path

from tests.postgres.server import Address
from tests.stories.forked_process import PROGRAM, RunningProcess, start_program

from holdfast.client.node_socket import NodeSocket

HOLDFAST = PROGRAM
UP_WITHIN_S = 60.0
LISTENING = b" listening "
"""What a node logs when its network APIs are open."""
QUIET_LEVELS = ("warning", "error", "critical")


def on_postgres(address: Address) -> dict[str, str]:
    """The settings of a node whose store is there; the secret comes from the environment, as it must."""
    return {
        "HOLDFAST_STORE": "postgres",
        "HOLDFAST_POSTGRES__DSN": address.dsn,
        "HOLDFAST_POSTGRES__SCHEMA": address.schema,
    }


async def accepts_connections(port: int) -> bool:
    """Whether a process listens on this port of the loopback address."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


HOUR_MS = "3600000"
QUIET_CHAIN = {"HOLDFAST_POLICY__CHAIN__BLOCK_MS": HOUR_MS, "HOLDFAST_POLICY__CHAIN__IDLE_BLOCK_MS": HOUR_MS}
"""No block within the time of a test, so that nothing happens but what the test does."""


class NodeProcess:
    """`holdfast up` in its own process, logging into its folder; it seals no block unless it is told to."""

    def __init__(self, data: Path, name: str = "node", environ: Mapping[str, str] | None = None) -> None:
        self.data, self.name, self._environ = data, name, QUIET_CHAIN | dict(environ or {})
        self._process: RunningProcess | None = None

    async def up(self, socket_path: Path | None = None) -> Path:
        """Start it and wait until it answers, at its folder's socket or at another one; returns that.

        The network APIs open a moment after that socket: it is up when it logs where they are, or, where it logs too
        little for that, when their ports accept connections.
        """
        self.data.mkdir(mode=0o700, exist_ok=True)
        log = self.data.parent / f"{self.name}.log"
        before = log.stat().st_size if log.exists() else 0
        self._process = start_program(["up", "--data", str(self.data), "--node", self.name], log, self._environ)
        async with NodeSocket(socket_path or self.data, UP_WITHIN_S, answer_timeout_s=1.0) as node:
            answering, ending = asyncio.create_task(node.status()), asyncio.create_task(self._has_ended())
            await asyncio.wait({answering, ending}, return_when=asyncio.FIRST_COMPLETED)
            ending.cancel()
            if not answering.done():
                answering.cancel()
                raise AssertionError(f"it ended with {self._process.returncode}: {self.log()[-2_000:]}")
            await answering
        async with asyncio.timeout(UP_WITHIN_S):
            while not await self._is_listening(before) and self._process.poll() is None:
                await asyncio.sleep(0.01)
        return socket_path or self.data

    async def _is_listening(self, before: int) -> bool:
        if self._environ.get("HOLDFAST_LOG__LEVEL") not in QUIET_LEVELS:
            return LISTENING in self._logged(before)
        enabled = [api for api in ("HTTP", "GRPC") if self._environ.get(f"HOLDFAST_{api}__ENABLED") == "true"]
        return all([await accepts_connections(int(self._environ[f"HOLDFAST_{api}__PORT"])) for api in enabled])

    async def _has_ended(self) -> None:
        while self._process is not None and self._process.poll() is None:
            await asyncio.sleep(0.05)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def kill(self) -> None:
        """kill -9: no goodbye, no flush."""
        self.signal(signal.SIGKILL)
        await self.ended()

    async def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        assert self._process is not None
        return await asyncio.to_thread(self._process.wait, UP_WITHIN_S)

    def end(self) -> None:
        """Leave nothing running, whatever the test came to."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        return self._logged().decode()

    def _logged(self, after: int = 0) -> bytes:
        return (self.data.parent / f"{self.name}.log").read_bytes()[after:]
