"""The gateway as a child of its node (ARC-004): spawned by the owner, ended with it, restarted when it dies.

It is the archive of a node that has no other. The node is one of its users and has a key like everybody else.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import msgspec
import structlog

from holdfast.adapters.clock import MachineClock
from holdfast.adapters.keys.secret_file import exists, read_secret
from holdfast.app.log_output import configure_logging
from holdfast.config import GATEWAY_TOKEN, LOOPBACK, Config, gateway_folder
from holdfast.gateway.key_file import KeyFile
from holdfast.gateway.server import KEY_FILE, GatewayServer
from holdfast.gateway.settings import GatewaySettings
from holdfast.gateway.stores import make_store
from holdfast.ports import Clock
from holdfast.system.child_process import OWN_PIPE, CallFailed, ChildEnded, ChildProcess, exit_with_parent
from holdfast.system.durable_files import FOLDER_MODE, replace_file

RESTART_S, RESTART_S_MAX = 0.5, 30.0
STEADY_MS: Final = 60_000
"""A child that has run for so long was well: the next restart is quick again."""
END_S: Final = 5.0
"""How long it may take to end after its running requests."""
_log = structlog.get_logger()


class GatewayChild:
    """Keeps one gateway running in a child process."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config, self._clock = config, clock
        self._child: ChildProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self.restarts = 0
        ensure_token(gateway_folder(config) / KEY_FILE, config.data / GATEWAY_TOKEN, clock.wall_ms())

    @property
    def process_id(self) -> int | None:
        return self._child.process_id if self._child is not None else None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._keep_running(), name="gateway-child")

    async def stop(self) -> None:
        """Let it finish the requests that run, then end it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _keep_running(self) -> None:
        pause_s, end_s = RESTART_S, self._config.gateway.drain_ms / 1000 + END_S
        while True:
            child, started_ms = ChildProcess("spawn", exit_with_parent), self._clock.monotonic_ms()
            try:
                await asyncio.to_thread(child.start)
                self._child = child
                await _wait_ended(child, self._config)
            except (ChildEnded, CallFailed, OSError) as fault:
                if self._clock.monotonic_ms() - started_ms >= STEADY_MS:
                    pause_s = RESTART_S
                _log.error("gateway_ended", reason=str(fault), restart_s=pause_s)
            finally:
                self._child = None
                await asyncio.shield(asyncio.to_thread(_end, child, end_s))
            self.restarts += 1
            await self._clock.sleep(int(pause_s * 1000))
            pause_s = min(2 * pause_s, RESTART_S_MAX)


def ensure_token(key_file: Path, token_file: Path, now_ms: int) -> None:
    """A key for the node, once. One that was revoked stays so: that is an operator's word."""
    keys = KeyFile(key_file)
    if exists(token_file) and keys.authenticate(read_secret(token_file).decode("utf-8", "replace").strip()):
        return
    _, token = keys.create(now_ms, "the node itself", is_admin=False, quota_bytes=0, quota_items=0)
    token_file.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    replace_file(token_file, f"{token}\n".encode())


async def _wait_ended(child: ChildProcess, config: Config) -> None:
    """Raises how it ended."""
    child.begin(run_gateway, OWN_PIPE, config)
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(child.fileno(), readable.set)
    try:
        while True:
            await readable.wait()
            readable.clear()
            while (url := child.take_message()) is not None:
                _log.debug("gateway_up", url=url, pid=child.process_id)
    finally:
        loop.remove_reader(child.fileno())


def _end(child: ChildProcess, within_s: float) -> None:
    child.hang_up()
    child.join(within_s)
    child.close()


# ------------------------------------------------------------------------------------------------ in the child


def run_gateway(pipe: Connection, config: Config) -> None:
    """Serve until the node closes the pipe."""
    configure_logging(config.log)
    asyncio.run(_run_gateway(pipe, config))


async def _run_gateway(pipe: Connection, config: Config) -> None:
    settings, folder, closed = child_settings(config.gateway), gateway_folder(config), asyncio.Event()

    def hear() -> None:
        with suppress(EOFError, OSError):
            pipe.recv()
            return
        closed.set()
        asyncio.get_running_loop().remove_reader(pipe.fileno())

    server = GatewayServer(settings, folder, make_store(settings, config.postgres, folder), MachineClock())
    try:
        await server.open()
        asyncio.get_running_loop().add_reader(pipe.fileno(), hear)
        pipe.send(server.url)
        await closed.wait()
    finally:
        await server.close()


def child_settings(settings: GatewaySettings) -> GatewaySettings:
    """Whatever else is set, a child listens to its own machine alone, where it needs no certificate."""
    return msgspec.structs.replace(settings, host=LOOPBACK, certificate=None, key=None, client_ca=None)
