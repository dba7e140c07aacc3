"""The workers that hand results over to an archive, from the configuration of a node (ARC-001)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog

from holdfast.adapters.archive.make import make_provider
from holdfast.adapters.clock import MachineClock
from holdfast.adapters.keys.archive_key import ArchiveKey, is_key_kept
from holdfast.adapters.keys.keccak import address_of, keccak_256
from holdfast.adapters.keys.secret_file import read_secret
from holdfast.adapters.keys.signing import SigningKey, verify
from holdfast.adapters.kzg.pool import KzgPool
from holdfast.adapters.peers.http_peers import HttpPeers
from holdfast.adapters.peers.no_peers import NoPeers
from holdfast.adapters.warm_store import WarmStore
from holdfast.app.gateway_child import GatewayChild
from holdfast.app.stores import make_blob_files
from holdfast.config import Config, why_not_own_gateway
from holdfast.core.base.values import Network
from holdfast.core.result.model import Result
from holdfast.engine.loop import Engine
from holdfast.workers.archive.archive_control import ArchiveControl
from holdfast.workers.archive.archived_outputs import ArchivedOutputs, FetchBudget
from holdfast.workers.archive.archiver import Archiver
from holdfast.workers.archive.blob_packer import BlobPacker
from holdfast.workers.archive.blob_pruner import BlobPruner
from holdfast.workers.archive.blob_repacker import BlobRepacker
from holdfast.workers.archive.recorded_archive import RecordedArchive
from holdfast.workers.supervisor import EventDrivenWorker, Worker
from holdfast.workers.sync.blob_repair import BlobRepair
from holdfast.workers.sync.notice_sender import NoticeSender
from holdfast.workers.sync.owner_service import OwnerService

ARCHIVE_KEY: Final = "keys/archive.key"
"""Encrypts private outputs before they leave the node; all nodes of a network share it."""
_log = structlog.get_logger()


class ArchiveWorkers:
    """Packer, archiver and pruner, and the processes that compute KZG."""

    def __init__(self, config: Config, engine: Engine, warm: WarmStore, signer: SigningKey) -> None:
        path = config.data / ARCHIVE_KEY
        key, files = ArchiveKey.load_or_create(path), make_blob_files(config)
        self._gateway = GatewayChild(config, MachineClock()) if config.runs_gateway else None
        self._kzg = KzgPool(config.archive.kzg_processes)
        self._provider = make_provider(config.archive, config.data)

        def is_kept() -> bool:
            return is_key_kept(path, key)

        self._packer = BlobPacker(engine, warm, files, self._kzg, key)
        queue_max = config.archive.queue_max
        self._archiver = Archiver(engine, self._provider, files, self._kzg, signer, verify, keccak_256, queue_max)
        self._pruner = BlobPruner(engine, files, self._archiver.metrics, is_kept)
        self._archiver.on_archived = self._pruner.prune
        self.recorded = RecordedArchive(engine, self._provider, files, self._kzg, key, is_kept)
        budget = FetchBudget(config.archive.fetch_bytes_per_hour, engine.now_ms)
        outputs = ArchivedOutputs(self.recorded.read, fetched_folder(config), budget)
        peers = _peers(config)
        repair = BlobRepair(engine, files, self._kzg, self._provider, peers)
        repacker = BlobRepacker(engine, warm, files, key)
        self.control = ArchiveControl(
            engine, self._archiver, self._pruner, self.recorded, outputs, repair.recall, repacker
        )
        self.control.count_lost = lambda: repair.bytes_lost
        self.service = OwnerService(
            engine, files, verify, address_of, engine.submit_many, self.control.sync_metrics, self._kzg
        )
        self._sender = NoticeSender(engine, self.service, peers)

    def start(self) -> None:
        """Run what the workers need beside them."""
        if self._gateway is not None:
            self._gateway.start()

    def workers(self) -> Iterator[Worker | EventDrivenWorker]:
        yield self._packer
        yield self._archiver
        yield self._pruner
        yield self._sender

    async def close(self) -> None:
        await self.control.close()
        await self._kzg.close()
        await self._provider.close()
        if self._gateway is not None:
            await self._gateway.stop()


def fetched_folder(config: Config) -> Path:
    """Where outputs lie that were fetched from the archive. Nodes that share a folder have one each."""
    return config.data / "fetched" / config.node


def stored_key_of(config: Config, result: Result) -> tuple[int, bytes] | None:
    """BLB-003: whoever may read an output needs its key, also from a node whose archive was taken out of use."""
    path = config.data / ARCHIVE_KEY
    if not path.exists():
        return None
    key = ArchiveKey.load(path)
    return key.id, key.key_of(result.task_id, result.result_digest)


def report_no_archive(config: Config) -> None:
    """A node without an archive keeps every output on its disk: whoever did not choose that is told."""
    if config.runs_gateway and (missing := why_not_own_gateway(config.gateway)):
        _log.warning("archive_missing", reason=missing.message, hint=missing.hint)
    elif config.policy.network is Network.PRODUCTION:
        _log.warning("archive_not_configured", hint="outputs stay on this disk until [archive] names a provider")


def _peers(config: Config) -> HttpPeers | NoPeers:
    """Followers that are asked for what the archive lost."""
    settings = config.archive
    if not settings.peers or settings.peers_token_file is None:
        return NoPeers()
    return HttpPeers(settings.peers.split(), read_secret(settings.peers_token_file).decode("utf-8").strip())
