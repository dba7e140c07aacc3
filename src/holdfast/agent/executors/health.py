"""Whether executors can do their work: probed now and then; offers for one that cannot are declined (LEA-006)."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from holdfast.agent.executors.registry import ExecutorRegistry
from holdfast.ports import Clock

INTERVAL_MS: Final = 15_000
PROBE_S: Final = 10.0
_log = structlog.get_logger()


async def probe_loop(registry: ExecutorRegistry, clock: Clock) -> None:
    """For ever; an executor says by `probe` why it cannot work, or nothing."""
    while True:
        await probe_all(registry)
        await clock.sleep(INTERVAL_MS)


async def probe_all(registry: ExecutorRegistry) -> None:
    """One round. What an executor has no probe for is taken as healthy."""
    for key, executor in registry.executors:
        probe = getattr(executor, "probe", None)
        if probe is None:
            continue
        try:
            async with asyncio.timeout(PROBE_S):
                reason = await probe()
        except Exception as fault:
            reason = f"{type(fault).__name__}: {fault}"
        if (key in registry.unhealthy) != bool(reason):
            log = _log.warning if reason else _log.info
            log("executor_unhealthy" if reason else "executor_healthy", kind=key[0], name=key[1], reason=reason)
        if reason:
            registry.unhealthy.add(key)
        else:
            registry.unhealthy.discard(key)
