"""Maintains providers whose timers are due, and credits them the node's own outage.

PRV-002: missed heartbeats, poor health, the end of jail, stake that is free again; LEA-007: leases of providers that
may not work any more. Core decides what happens; a healthy provider costs nothing.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.provider.messages import MaintainProviders
from holdfast.core.workflows.revoke import is_maintenance_due
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted

INTERVAL_MS: Final = 200
"""How late the leases of a jailed provider may end."""


class ProviderMonitor:
    """Runs at once when a node starts: the node's outage is credited before anything expires (LEA-008)."""

    starts_at_once = True
    interval_ms = INTERVAL_MS

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def run_once(self) -> None:
        """Submit bounded commands until no provider is due."""
        engine = self._engine
        if engine.clock_fault is not None:
            return  # CAN-006: no heartbeat counts as missed by a clock that is not believed
        while is_maintenance_due(engine.undurable_state, engine.now_ms()):
            outcome = await engine.submit(MaintainProviders())
            if not isinstance(outcome, Accepted) or outcome.is_repeat:
                break
