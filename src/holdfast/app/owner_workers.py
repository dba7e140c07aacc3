"""The background workers of the journal's owner, from its configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from holdfast.adapters.clock import MachineClock
from holdfast.adapters.files import AtomicFolder
from holdfast.adapters.keys.signing import SigningKey, verify
from holdfast.adapters.warm_store import WarmStore
from holdfast.api.evidence.reader import read_range
from holdfast.config import Config
from holdfast.engine.loop import Engine
from holdfast.verifiers.registry import load_methods
from holdfast.verifiers.sandbox import SandboxLimits, SandboxPool
from holdfast.workers.as_run_writer import AsRunWriter
from holdfast.workers.dispatcher import Dispatcher
from holdfast.workers.evictor import Evictor
from holdfast.workers.evidence_pruner import EvidencePruner
from holdfast.workers.job_purger import JobPurger
from holdfast.workers.proposer import Proposer
from holdfast.workers.provider_monitor import ProviderMonitor
from holdfast.workers.reaper import Reaper
from holdfast.workers.retention.collector import Collector
from holdfast.workers.rollback_runner import RollbackRunner
from holdfast.workers.supervisor import EventDrivenWorker, Worker, supervise, worker_name
from holdfast.workers.verification_scheduler import VerificationScheduler


class OwnerWorkers:
    """All workers of an owner, each in a supervised task, and the processes that verification uses."""

    def __init__(self, config: Config, engine: Engine, blobs: WarmStore, signer: SigningKey) -> None:
        self._config, self._engine, self._blobs, self._signer = config, engine, blobs, signer
        settings = config.verifiers
        self._sandboxes = SandboxPool(settings.processes, SandboxLimits(settings.seconds_max, settings.memory_mib_max))
        self.collector = Collector(engine, blobs, MachineClock())
        """Retention (RET-002): runs by the clock, and when an operator asks for it."""
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for worker in self._workers():
            self._tasks.append(asyncio.create_task(supervise(worker, MachineClock()), name=worker_name(worker)))

    async def stop(self) -> None:
        """Cancel every worker, wait for its end, and end the processes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sandboxes.close()

    def _workers(self) -> Iterator[Worker | EventDrivenWorker]:
        engine, config = self._engine, self._config
        yield Proposer(engine, self._signer)
        yield Evictor(engine)
        yield RollbackRunner(engine)
        yield Dispatcher(engine)
        yield Reaper(engine)
        yield ProviderMonitor(engine)
        methods = load_methods(verify, config.verifiers)
        yield VerificationScheduler(engine, methods, self._blobs, self._sandboxes.run, config.verifiers.tries)
        yield JobPurger(engine)
        yield EvidencePruner(engine)
        if (folder := config.asrun_folder) is not None:
            yield AsRunWriter(engine, lambda channel: AtomicFolder(folder / channel), read_range)
        yield self.collector
