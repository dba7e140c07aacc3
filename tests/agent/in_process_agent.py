"""An agent in this process, quick to try again, and what a test asks of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from tests.agent.fake_node import FakeNode

from holdfast.adapters.clock import MachineClock
from holdfast.adapters.keys.signing import SigningKey
from holdfast.agent.executors.built_in import BUILT_IN
from holdfast.agent.executors.contract import Executor
from holdfast.agent.executors.registry import ExecutorRegistry
from holdfast.agent.runner import Agent
from holdfast.agent.settings import AgentSettings
from holdfast.core.base.values import Kind
from holdfast.spool import SpoolPolicy

SIGNER = SigningKey.from_seed(b"oak" + bytes(29))
PATIENCE_S = 60.0


def settings_for(node: FakeNode, data: Path, **told: Any) -> AgentSettings:
    quick = AgentSettings(
        node=f"127.0.0.1:{node.port}",
        data=data,
        name="oak",
        account="oak",
        models=("echo", "sleep"),
        retry_base_ms=5,
        retry_cap_ms=50,
        drain_ms=30_000,
        flush_ms=30_000,
        call_ms=30_000,
    )
    return msgspec.structs.replace(quick, **told)


def make_agent(
    node: FakeNode,
    data: Path,
    executors: Mapping[tuple[Kind, str], Executor] | None = None,
    policy: SpoolPolicy | None = None,
    **told: Any,
) -> Agent:
    settings, draw = settings_for(node, data, **told), Random(5).randrange
    offered = {(Kind.AI, model): BUILT_IN[Kind.AI, model] for model in settings.models}
    registry = ExecutorRegistry({**offered, **(executors or {})})
    return Agent(settings, registry, SIGNER, MachineClock(), draw, spool_policy=policy)


@asynccontextmanager
async def running_agent(node: FakeNode, data: Path, **told: Any) -> AsyncIterator[Agent]:
    """An agent that works, and is stopped in the end without much patience."""
    agent = make_agent(node, data, **told)
    await agent.start()
    try:
        yield agent
    finally:
        agent.settings = msgspec.structs.replace(agent.settings, drain_ms=0, flush_ms=0)
        await agent.stop()


async def wait_until(condition: Callable[[], object], what: str = "") -> None:
    """Wait until it is so; no test waits for time to pass."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"it never came: {what}") from None


def lease_dirs(data: Path) -> list[str]:
    """Leases that are on disk."""
    work = data / "work"
    return sorted(entry.name for entry in work.iterdir() if entry.is_dir()) if work.exists() else []
