"""The gateway's process: opens its stores, serves, repairs in the background, and stops without losing an answer."""

from __future__ import annotations

import asyncio
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from holdfast.adapters.keys.item_signatures import is_signed_by_owner
from holdfast.adapters.keys.signing import SigningKey
from holdfast.api.http.connection import make_guard
from holdfast.api.http.tls import tls_context
from holdfast.api.http.uvicorn_server import UvicornServer, listening_socket, uvicorn_config
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.gateway.http.query_endpoints import QueryEndpoints
from holdfast.gateway.http.read_endpoints import ReadEndpoints
from holdfast.gateway.http.resumable_endpoints import ResumableEndpoints
from holdfast.gateway.http.routes import GatewayRoutes
from holdfast.gateway.http.upload_endpoints import UploadEndpoints
from holdfast.gateway.item_store import ItemStore
from holdfast.gateway.key_file import KeyFile
from holdfast.gateway.maintenance import Report, ScrubFile, add_waiting, repair_index, scrub
from holdfast.gateway.metrics import GatewayMetrics
from holdfast.gateway.resumable import ResumableUploads
from holdfast.gateway.settings import GatewaySettings, faults, http_settings
from holdfast.gateway.uploads import Uploads
from holdfast.ports import Clock
from holdfast.system.durable_files import FOLDER_MODE, lock_file, remove_leftovers
from holdfast.wire.ans104 import base64url

THREADS: Final = 32
"""Uploads wait for disks, not for processors."""
DRAIN_POLL_S: Final = 0.01
HOUSEKEEPING_MS: Final = 1_000
EXPIRE_EVERY: Final = 600
"""Rounds of housekeeping between two looks for expired uploads."""
SCRUB_SAVE_UPLOADS: Final = 100
KEY_FILE, SIGNING_KEY, SCRUB_FILE = "keys.json", "gateway.pem", "scrub.json"
_log = structlog.get_logger()


class GatewayServer:
    """One gateway and its listening address."""

    def __init__(self, settings: GatewaySettings, folder: Path, store: ItemStore, clock: Clock) -> None:
        self._settings, self._folder, self._clock, self.store = settings, folder, clock, store
        self.metrics = GatewayMetrics()
        self.keys = KeyFile(folder / KEY_FILE, clock.monotonic_ms)
        self.repaired = asyncio.Event()
        """Set when the index has everything that was stored before this start."""
        self._server: UvicornServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._background: list[asyncio.Task[None]] = []
        self._lock: int | None = None
        self._is_closed = False
        self.port = settings.port

    @property
    def url(self) -> str:
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        return f"{'http' if self._settings.certificate is None else 'https'}://{host}:{self.port}"

    async def open(self) -> None:
        """Listen; raises Unavailable where that is not possible or not safe."""
        if refusals := list(faults(self._settings)):
            raise Unavailable(refusals[0].rule, "; ".join(each.message for each in refusals), refusals[0].hint)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "gateway"))
        self._take_folder()
        is_complete = await self.store.index.open()
        await self._listen()
        self._background = [
            asyncio.create_task(self._repair(is_complete), name="gateway-repair"),
            asyncio.create_task(self._housekeeping(), name="gateway-housekeeping"),
        ]
        if self._settings.scrub_hours:
            self._background.append(asyncio.create_task(self._scrub(), name="gateway-scrub"))
        _log.info("gateway_listening", url=self.url, keys=len(self.keys.keys()))
        if not self.keys.keys():
            _log.warning("gateway_without_keys", hint="holdfast gateway key create")

    async def close(self) -> None:
        """Accept no more requests, finish those that run, then close the index as complete if it is."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._server is not None and self._serving is not None:
            server, self._server = self._server, None
            server.stop_listening()
            self._routes.is_closing = True
            await self._wait_drained()
            server.request_exit()
            await self._serving
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        with suppress(Unavailable, Corrupt):
            await self.store.index.close(is_complete=self.repaired.is_set() and not self.store.unindexed)
        await self.store.objects.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # ------------------------------------------------------------------------------------ opening

    def _take_folder(self) -> None:
        self._folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        self._lock = lock_file(self._folder / "gateway.lock")
        if self._lock is None:
            raise Unavailable("ARC-004", f"another gateway uses {self._folder}", "stop it, or use another folder")
        spool = self._folder / "spool"
        spool.mkdir(mode=FOLDER_MODE, exist_ok=True)
        remove_leftovers(spool)  # what was being uploaded when the last process ended, and was not answered

    async def _listen(self) -> None:
        settings = http_settings(self._settings)
        tls, sock = tls_context(settings), listening_socket(settings)
        self.port = sock.getsockname()[1]
        signer = SigningKey.load_or_create(self._folder / SIGNING_KEY)
        self._routes = self._make_routes(signer)
        server = UvicornServer(uvicorn_config(self._routes, settings), make_guard(settings, self.metrics), tls)
        self.metrics.gauges["connections"] = lambda: len(server.server_state.connections)
        self._server, self._serving = server, asyncio.create_task(server.serve([sock]), name="gateway-http")
        await server.is_up.wait()

    def _make_routes(self, signer: SigningKey) -> GatewayRoutes:
        settings, clock, keys, metrics = self._settings, self._clock, self.keys, self.metrics
        uploads = Uploads(self.store, signer, is_signed_by_owner, clock, settings)
        endpoints = UploadEndpoints(uploads, keys, settings, self._folder / "spool", metrics)
        self._resumable = ResumableUploads(self._folder / "uploads", settings, clock)
        resumable = ResumableEndpoints(self._resumable, endpoints, keys, settings, clock)
        queries = QueryEndpoints(self.store, uploads, keys, settings, metrics, owner_address(signer))
        queries.url = settings.url or self.url
        reads = ReadEndpoints(self.store, keys, metrics)
        metrics.gauges["uploads_running"] = lambda: endpoints.running
        metrics.gauges["index_waiting"] = lambda: len(self.store.unindexed)
        return GatewayRoutes(endpoints, resumable, reads, queries, keys, settings, metrics, clock)

    async def _wait_drained(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_ms / 1000):
                while self._routes.running:  # noqa: ASYNC110 - many may end, in any order
                    await asyncio.sleep(DRAIN_POLL_S)

    # ------------------------------------------------------------------------------------ in the background

    async def _repair(self, is_complete: bool) -> None:
        """After a crash the store may have items that the index does not: they are added while it serves."""
        while not is_complete:
            try:
                report = await repair_index(self.store)
            except (Unavailable, Corrupt) as fault:
                _log.warning("index_repair_failed", reason=str(fault))
                await self._clock.sleep(10 * HOUSEKEEPING_MS)
                continue
            is_complete = True
            _log.info("index_repaired", uploads=report.uploads, added=report.added, faults=report.findings_total)
        self.repaired.set()

    async def _housekeeping(self) -> None:
        rounds = 0
        while True:
            await self._clock.sleep(HOUSEKEEPING_MS)
            if self.store.unindexed:
                await add_waiting(self.store)
            if rounds % EXPIRE_EVERY == 0 and (removed := await self._resumable.expire()):
                _log.info("uploads_expired", count=removed)
            rounds += 1

    async def _scrub(self) -> None:
        """One pass after the other, each spread over `scrub_hours`; a restart goes on where the last one ended."""
        file = ScrubFile(self._folder / SCRUB_FILE)
        await self.repaired.wait()
        while True:
            report = file.load()
            if report.is_whole:
                report = Report()
            pace = _Pace(self._settings.scrub_hours, await self._total_bytes(), self._clock)

            async def pause(size: int, report: Report = report, pace: _Pace = pace) -> None:
                if report.uploads % SCRUB_SAVE_UPLOADS == 0:
                    await asyncio.to_thread(file.save, report)
                await pace.wait(size)

            try:
                await scrub(self.store, is_signed_by_owner, report, pause)
            except (Unavailable, Corrupt) as fault:
                _log.warning("scrub_interrupted", reason=str(fault))
            else:
                await asyncio.to_thread(file.save, report)
                self.metrics.gauges["scrub_findings"] = lambda report=report: report.findings_total  # type: ignore[misc]
                _log.info("scrub_finished", uploads=report.uploads, bytes=report.bytes, faults=report.findings_total)
            await self._clock.sleep(3_600_000)

    async def _total_bytes(self) -> int:
        try:
            return (await self.store.index.totals())[1]
        except (Unavailable, Corrupt):
            return 0


class _Pace:
    """Spreads reading over hours: a pause follows each item, in proportion to its size."""

    def __init__(self, hours: int, total_bytes: int, clock: Clock) -> None:
        self._ms_per_mib = hours * 3_600_000 * (1 << 20) // max(total_bytes, 1 << 20)
        self._clock = clock

    async def wait(self, size: int) -> None:
        await self._clock.sleep(min(3_600_000, self._ms_per_mib * size // (1 << 20)))


def owner_address(signer: SigningKey) -> str:
    """Under which address the items are found that this gateway has signed."""
    return base64url(hashlib.sha256(signer.public).digest())
