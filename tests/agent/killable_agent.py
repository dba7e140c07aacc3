"""An agent in a process of its own that kills itself, once, at a point that the test names.

SIGKILL leaves no time for anything: what is on disk at that moment is all that the next process has.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from tests.agent.fake_node import FakeNode
from tests.agent.in_process_agent import make_agent
from tests.stories.forked_process import start_program

from holdfast.agent.executors.built_in import Echo
from holdfast.agent.executors.contract import CancelSignal, Executor, ExecutorIsolation
from holdfast.agent.leases import work_dir
from holdfast.agent.leases.active_leases import ActiveLeases
from holdfast.agent.leases.group_signer import GroupSigner
from holdfast.agent.leases.records import ACCEPTED, COMPLETED
from holdfast.agent.leases.work_dir import WorkDir
from holdfast.agent.transport.evidence_emitter import EvidenceEmitter
from holdfast.agent.transport.node_client import NodeClient
from holdfast.core.base.values import Kind
from holdfast.core.job.spec import Payload, WorkPayload
from holdfast.shipping.session_sender import SessionSender
from holdfast.spool import Ticket
from holdfast.spool.files.record import BLOCK_FENCE

DIED, THROWN = "died", "thrown"


def kill_once(data: Path) -> None:
    """Once: whoever comes after lives."""
    if not (data / DIED).exists():
        (data / DIED).touch()
        os.kill(os.getpid(), signal.SIGKILL)


class KillingExecutor(msgspec.Struct, frozen=True):
    """An executor in whose middle the agent dies."""

    data: str
    isolation: ExecutorIsolation = ExecutorIsolation.THREAD

    def run(self, payload: WorkPayload, cancel: CancelSignal) -> bytes:
        kill_once(Path(self.data))
        return Echo().run(payload, cancel)


class Dice(msgspec.Struct, frozen=True):
    """An executor whose output is another one every time, and that counts how often it has run."""

    data: str
    isolation: ExecutorIsolation = ExecutorIsolation.THREAD

    def run(self, payload: Payload, cancel: CancelSignal) -> bytes:
        with (Path(self.data) / THROWN).open("ab") as thrown:
            thrown.write(b".")
        return os.urandom(len(str(payload.spec["prompt"])))


def kill_after(kind: type, name: str, data: Path, is_matching: Callable[..., bool] = lambda *_: True) -> None:
    """Die as soon as this coroutine has returned."""
    real = getattr(kind, name)

    async def then(self: Any, *args: Any) -> Any:
        found = await real(self, *args)
        if is_matching(*args):
            kill_once(data)
        return found

    setattr(kind, name, then)


def kill_before_offers(data: Path) -> None:
    """Die when an offer comes, before anything is done about it."""
    real = ActiveLeases.on_offers

    def first(self: ActiveLeases, offers: Any) -> None:
        kill_once(data)
        real(self, offers)

    ActiveLeases.on_offers = first  # type: ignore[method-assign]


def kill_after_ack(data: Path) -> None:
    """Die when the ack of all that there is to say is on disk: the spool will not know any more what was told."""
    real = SessionSender.on_ack

    def then(self: SessionSender, sequence: int) -> None:
        real(self, sequence)
        told = b"".join(self.spool.replay(0))
        if COMPLETED.encode() in told and BLOCK_FENCE.encode() in told and self.is_delivered:
            stored = self.spool.ack(sequence)
            assert isinstance(stored, Ticket)
            assert stored.wait(60)
            kill_once(data)

    SessionSender.on_ack = then  # type: ignore[method-assign]


def kill_half_removed(data: Path) -> None:
    """Die when the offer is gone and the rest is still there."""
    real = Path.unlink

    def then(self: Path, missing_ok: bool = False) -> None:
        real(self, missing_ok)
        if self.name == work_dir.OFFER:
            kill_once(data)

    Path.unlink = then  # type: ignore[method-assign]


def kill_after_emit(payload_type: str, data: Path) -> None:
    """Die as soon as this record is queued: it is in memory, and on its way to the disk."""
    real = EvidenceEmitter.try_emit

    def then(self: EvidenceEmitter, emitted_type: str, payload: dict[str, Any]) -> Any:
        emitted = real(self, emitted_type, payload)
        if emitted_type == payload_type:
            kill_once(data)
        return emitted

    EvidenceEmitter.try_emit = then  # type: ignore[assignment, method-assign]


def kill_after_spooled(payload_type: str, data: Path) -> None:
    """Die as soon as this record is durable."""
    real = EvidenceEmitter.try_emit

    def then(self: EvidenceEmitter, emitted_type: str, payload: dict[str, Any]) -> Any:
        emitted = real(self, emitted_type, payload)
        if emitted_type == payload_type and emitted is not None:
            emitted.ticket.wait(60)
            kill_once(data)
        return emitted

    EvidenceEmitter.try_emit = then  # type: ignore[assignment, method-assign]


KILL_POINTS: dict[str, Callable[[Path], None]] = {
    "offered": kill_before_offers,
    "accepted": partial(kill_after_emit, ACCEPTED),
    "acceptance spooled": partial(kill_after_spooled, ACCEPTED),
    "executing": lambda data: None,
    "completion emitted": partial(kill_after_emit, COMPLETED),
    "completion spooled": partial(kill_after_spooled, COMPLETED),
    "completion acked": kill_after_ack,
    "never": lambda data: None,
}
"""Of every lease, and …"""
LARGE_KILL_POINTS: dict[str, Callable[[Path], None]] = {
    "kept, not acknowledged": lambda data: kill_after(WorkDir, "store_offer", data),
    "output written": lambda data: kill_after(WorkDir, "store_output", data),
    "uploaded": lambda data: kill_after(NodeClient, "put_output", data),
    "signed": lambda data: kill_after(GroupSigner, "sign", data),
    "being removed": kill_half_removed,
}
"""… of one that is too large for the spool."""


async def run(port: int, data: Path, point: str) -> None:
    node = FakeNode()
    node.port = port
    (KILL_POINTS | LARGE_KILL_POINTS)[point](data)
    executors: dict[tuple[Kind, str], Executor] = {(Kind.AI, "dice"): Dice(str(data))}
    if point == "executing":
        executors[Kind.AI, "echo"] = KillingExecutor(str(data))
    agent = make_agent(node, data, executors=executors)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await agent.run(stop)


class KillableAgent:
    """What the test holds."""

    def __init__(self, port: int, data: Path, point: str = "never") -> None:
        data.mkdir(exist_ok=True)
        words = [str(port), str(data), point]
        self.process = start_program(words, data / "log", module="tests.agent.killable_agent")

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, 60)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
