"""An agent in a process of its own that kills itself, once, at a point that the test names.

SIGKILL leaves no time for anything: what is on disk at that moment is all that the next process has.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from tests.agent.fake_node import FakeNode
from tests.agent.house import made

from holdfast.agent import work
from holdfast.agent.carrier import COMPLETED
from holdfast.agent.client import NodeClient
from holdfast.agent.delivery import Delivery
from holdfast.agent.executors import Cancel, Echo, Where
from holdfast.agent.shipper import Shipper
from holdfast.agent.work import WorkFolder
from holdfast.core.job.spec import Payload
from holdfast.core.values import Kind
from holdfast.spool import Ticket
from holdfast.spool.record import BLOCK_FENCE

REPOSITORY = Path(__file__).parents[2]
DIED = "died"


def die(data: Path) -> None:
    """Once: whoever comes after lives."""
    if not (data / DIED).exists():
        (data / DIED).touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Deadly(msgspec.Struct, frozen=True):
    """An executor in whose middle the agent dies."""

    data: str
    where: Where = Where.THREAD

    def run(self, payload: Payload, cancel: Cancel) -> bytes:
        die(Path(self.data))
        return Echo().run(payload, cancel)


def after(kind: type, name: str, data: Path, is_it: Callable[..., bool] = lambda *_: True) -> None:
    """Die as soon as this coroutine has returned."""
    real = getattr(kind, name)

    async def then(self: Any, *args: Any) -> Any:
        found = await real(self, *args)
        if is_it(*args):
            die(data)
        return found

    setattr(kind, name, then)


def before(kind: type, name: str, data: Path) -> None:
    real = getattr(kind, name)

    async def first(self: Any, *args: Any) -> Any:
        die(data)
        return await real(self, *args)

    setattr(kind, name, first)


def after_ack(data: Path) -> None:
    """Die when the ack of all that there is to say is on disk: the spool will not know any more what was told."""
    real = Delivery.take_ack

    def then(self: Delivery, sequence: int) -> None:
        real(self, sequence)
        told = b"".join(self.spool.replay(0))
        if COMPLETED.encode() in told and BLOCK_FENCE.encode() in told and self.is_delivered:
            stored = self.spool.ack(sequence)
            assert isinstance(stored, Ticket)
            assert stored.wait(60)
            die(data)

    Delivery.take_ack = then  # type: ignore[method-assign]


def half_removed(data: Path) -> None:
    """Die when the offer is gone and the rest is still there."""
    real = Path.unlink

    def then(self: Path, missing_ok: bool = False) -> None:
        real(self, missing_ok)
        if self.name == work.OFFER:
            die(data)

    Path.unlink = then  # type: ignore[method-assign]


def is_completion(payload_type: str, _: object) -> bool:
    return payload_type == COMPLETED


POINTS: dict[str, Callable[[Path], None]] = {
    "offered": lambda data: before(WorkFolder, "keep_offer", data),
    "kept, not acknowledged": lambda data: after(WorkFolder, "keep_offer", data),
    "executing": lambda data: None,
    "output written": lambda data: after(WorkFolder, "keep_output", data),
    "uploaded": lambda data: after(NodeClient, "put_output", data),
    "outcome decided": lambda data: after(WorkFolder, "keep_outcome", data),
    "completion emitted": lambda data: after(Shipper, "_emit", data, is_completion),
    "completion spooled": lambda data: after(Shipper, "spool", data, is_completion),
    "completion acked": after_ack,
    "being removed": half_removed,
    "never": lambda data: None,
}


async def run(port: int, data: Path, point: str) -> None:
    node = FakeNode()
    node.port = port
    POINTS[point](data)
    deadly = {(Kind.AI, "echo"): Deadly(str(data))} if point == "executing" else {}
    agent = made(node, data, executors=deadly)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await agent.run(stop)


class AgentProcess:
    """What the test holds."""

    def __init__(self, port: int, data: Path, point: str = "never") -> None:
        data.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "tests.agent.process", str(port), str(data), point]
        with (data / "log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log)

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, 60)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
