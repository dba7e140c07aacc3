"""Deletes inputs that no job needs (JOB-003): unnamed ones after a day, named ones days after their job is final."""

from __future__ import annotations

from typing import Final

import structlog

from holdfast.core.policy import DAY_MS
from holdfast.engine.loop import Engine
from holdfast.engine.queries.jobs import FilterInputsInUse
from holdfast.ports.inputs import Inputs

INTERVAL_MS: Final = 600_000
PAGE: Final = 1_000
UNNAMED_MS: Final = DAY_MS
_log = structlog.get_logger()


class InputCollector:
    """Whatever a job in memory names is in use; a job leaves memory when its end is final."""

    starts_at_once = True
    interval_ms = INTERVAL_MS

    def __init__(self, engine: Engine, inputs: Inputs) -> None:
        self._engine, self._inputs = engine, inputs
        self.deleted = 0
        """Since the node started."""

    async def run_once(self) -> None:
        now_ms = self._engine.now_ms()
        unnamed_ms, named_ms = now_ms - UNNAMED_MS, now_ms - self._engine.policy.result.retain_warm_days * DAY_MS
        await self._inputs.delete_uploads(unnamed_ms)
        while aged := await self._inputs.list_aged(unnamed_ms, named_ms, PAGE):
            digests = tuple({each.digest for each in aged})
            in_use = await self._engine.query_durable(FilterInputsInUse(digests))
            await self._inputs.touch([each for each in aged if each.digest in in_use], now_ms)
            unused = [each for each in aged if each.digest not in in_use]
            deleted = await self._inputs.delete(unused, unnamed_ms, named_ms)
            self.deleted += deleted
            if deleted:
                _log.info("inputs_deleted", count=deleted)
            elif not in_use:
                return
