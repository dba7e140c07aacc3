"""In the node: keeps the front process running, says which of its clients have shown a key, knows its counts.

The node holds the listening socket: when the front process dies, clients wait in the socket's queue for the next one.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from holdfast.api.front.forwarder import MESSAGE_BYTES_MAX, run_front
from holdfast.api.front.peer_name import read_peer
from holdfast.api.front.settings import ConnectionProven, FrontCounts, FrontMessage, FrontSettings, StopListening
from holdfast.system.child_process import OWN_PIPE, CallFailed, ChildEnded, ChildProcess, exit_with_parent

RESTART_S: Final = 1.0
_log = structlog.get_logger()
_decode: Final = msgspec.json.Decoder(FrontCounts).decode


class FrontProcess:
    """One for a gRPC server. It belongs to one event loop."""

    def __init__(self) -> None:
        self.counts = FrontCounts()
        self.restarts = 0
        self._child: ChildProcess | None = None
        self._control: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None
        self._proven: dict[str, None] = {}
        """Peers that were reported, the newest last: each is reported once."""
        self._proven_max = 0

    @property
    def process_id(self) -> int | None:
        return self._child.process_id if self._child is not None else None

    def open(self, listener: socket.socket, settings: FrontSettings) -> None:
        """Clients of this listening socket are served as soon as the process runs."""
        self._proven_max = 2 * settings.connections_max
        self._task = asyncio.create_task(self._keep_running(listener, settings), name="front process")

    def on_proven(self, peer: str, key: str) -> None:
        """The client behind this peer has shown who it is; a connection that was not forwarded has no limits here."""
        if peer in self._proven or (forwarded := read_peer(peer)) is None:
            return
        self._proven[peer] = None
        if len(self._proven) > self._proven_max:
            del self._proven[next(iter(self._proven))]
        self._send(ConnectionProven(forwarded.number, key))

    def stop_listening(self) -> None:
        self._send(StopListening())

    async def close(self) -> None:
        """End the process, and all connections with it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _send(self, message: FrontMessage) -> None:
        """Without waiting: a process that hangs must not stop the node."""
        if self._control is not None:
            with suppress(OSError):
                self._control.send(msgspec.json.encode(message))

    async def _keep_running(self, listener: socket.socket, settings: FrontSettings) -> None:
        while True:
            child = ChildProcess("spawn", exit_with_parent)
            control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                control.setblocking(False)
                await asyncio.to_thread(child.start)
                child.begin(run_front, OWN_PIPE, settings)
                for each in (listener, theirs):
                    child.send_descriptor(each.fileno())
                theirs.close()
                self._child, self._control = child, control
                await self._listen(child, control)
            except (ChildEnded, CallFailed, OSError) as fault:
                _log.error("front_process_ended", reason=str(fault), restart_s=RESTART_S)
            finally:
                self._child = self._control = None
                theirs.close()
                control.close()
                await asyncio.shield(asyncio.to_thread(child.close))
            self.restarts += 1
            self.counts = FrontCounts()
            await asyncio.sleep(RESTART_S)

    async def _listen(self, child: ChildProcess, control: socket.socket) -> None:
        """Take its reports until it ends."""
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        for source in (child, control):
            loop.add_reader(source, readable.set)
        try:
            while True:
                await readable.wait()
                readable.clear()
                with suppress(BlockingIOError):
                    while raw := control.recv(MESSAGE_BYTES_MAX):
                        self.counts = _decode(raw)
                child.take_message()  # raises where it has ended
        finally:
            for source in (child, control):
                loop.remove_reader(source)
