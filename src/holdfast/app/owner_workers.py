"""The background workers of the journal's owner, from its configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from holdfast.adapters.archive.settings import ProviderKind
from holdfast.adapters.blobs.blob_folder import BlobFolder
from holdfast.adapters.clock import MachineClock
from holdfast.adapters.files import AtomicFolder
from holdfast.adapters.inputs.input_store import InputStore
from holdfast.adapters.keys.keccak import address_of
from holdfast.adapters.keys.signing import SigningKey, verify
from holdfast.adapters.warm_store import WarmStore
from holdfast.api.evidence.reader import read_range
from holdfast.app.archive_workers import ArchiveWorkers, report_no_archive
from holdfast.config import Config
from holdfast.engine.loop import Engine
from holdfast.history.full_journal import FullJournal
from holdfast.verifiers.registry import load_methods
from holdfast.verifiers.sandbox import SandboxLimits, SandboxPool
from holdfast.workers.as_run_writer import AsRunWriter
from holdfast.workers.dispatcher import Dispatcher
from holdfast.workers.evictor import Evictor
from holdfast.workers.evidence_pruner import EvidencePruner
from holdfast.workers.input_collector import InputCollector
from holdfast.workers.job_purger import JobPurger
from holdfast.workers.journal_scrubber import JournalScrubber
from holdfast.workers.proposer import Proposer
from holdfast.workers.provider_monitor import ProviderMonitor
from holdfast.workers.reaper import Reaper
from holdfast.workers.retention.collector import Collector
from holdfast.workers.rollback_runner import RollbackRunner
from holdfast.workers.scheduler import Scheduler
from holdfast.workers.supervisor import EventDrivenWorker, Worker, supervise, worker_name
from holdfast.workers.sync.owner_service import OwnerService
from holdfast.workers.sync.sync_metrics import SyncMetrics
from holdfast.workers.verification_scheduler import VerificationScheduler
from holdfast.workers.warm_scrubber import WarmScrubber


class OwnerWorkers:
    """All workers of an owner, each in a supervised task, and the processes that verification uses."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        journal: FullJournal,
        blobs: WarmStore,
        inputs: InputStore,
        signer: SigningKey,
    ) -> None:
        self._config, self._engine, self._blobs, self._signer = config, engine, blobs, signer
        self._inputs = inputs
        settings = config.verifiers
        self._sandboxes = SandboxPool(settings.processes, SandboxLimits(settings.seconds_max, settings.memory_mib_max))
        has_archive = config.archive.provider is not ProviderKind.NONE
        self.archive = ArchiveWorkers(config, engine, blobs, signer) if has_archive else None
        recorded = self.archive.recorded if self.archive is not None else None
        self.package_service = self.archive.service if self.archive is not None else _package_service(config, engine)
        """Blocks for followers (SYN-001)."""
        self.collector = Collector(engine, blobs, MachineClock(), recorded)
        """Retention (RET-002): runs by the clock, and when an operator asks for it."""
        files, days = AtomicFolder(config.data / "scrub"), config.scrub_days
        self.scrubber = WarmScrubber(engine, blobs, files, MachineClock(), days) if days else None
        self.journal_scrubber = JournalScrubber(engine, journal, MachineClock(), config.owner.scrub_hours)
        """Verifies the journal (ENG-009)."""
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        if self.archive is not None:
            self.archive.start()
        else:
            report_no_archive(self._config)
        for worker in self._workers():
            self._tasks.append(asyncio.create_task(supervise(worker, MachineClock()), name=worker_name(worker)))

    async def stop(self) -> None:
        """Cancel every worker, wait for its end, and end the processes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sandboxes.close()
        if self.archive is not None:
            await self.archive.close()

    def _workers(self) -> Iterator[Worker | EventDrivenWorker]:
        engine, config = self._engine, self._config
        yield Proposer(engine, self._signer)
        yield Evictor(engine)
        yield RollbackRunner(engine)
        yield Dispatcher(engine)
        yield Reaper(engine)
        yield Scheduler(engine)
        yield ProviderMonitor(engine)
        methods = load_methods(verify, config.verifiers)
        yield VerificationScheduler(engine, methods, self._blobs, self._sandboxes.run, config.verifiers.tries)
        yield JobPurger(engine)
        yield EvidencePruner(engine)
        yield InputCollector(engine, self._inputs)
        if (folder := config.asrun_folder) is not None:
            yield AsRunWriter(engine, lambda channel: AtomicFolder(folder / channel), read_range)
        if self.archive is not None:
            yield from self.archive.workers()
        yield self.collector
        if self.scrubber is not None:
            yield self.scrubber
        if config.owner.scrub_hours:
            yield self.journal_scrubber


def _package_service(config: Config, engine: Engine) -> OwnerService:
    """Without an archive blocks are served, too; new ones have no blobs."""
    files = BlobFolder(config.data / "blobs")
    return OwnerService(engine, files, verify, address_of, engine.submit_many, SyncMetrics())
