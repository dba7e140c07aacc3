"""The process behind `holdfast follow`: a blob follower over HTTP, from its configuration (SYN-001)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog

from holdfast.adapters.archive.make import make_provider
from holdfast.adapters.archive.settings import ProviderKind
from holdfast.adapters.blobs.blob_folder import BlobFolder
from holdfast.adapters.keys.keccak import address_of
from holdfast.adapters.keys.signing import verify
from holdfast.adapters.kzg.pool import KzgPool
from holdfast.adapters.peers.http_peers import HttpPeers
from holdfast.adapters.sqlite.follower_store import SqliteFollowerStore
from holdfast.api.http.v1.follower_server import FollowerServer
from holdfast.config import Config
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import ChainId, Height
from holdfast.ports.blobs import ArchiveReader
from holdfast.workers.sync.follower import BlobFollower, FollowerParts, FollowerTrust

FILE: Final = "follower.db"
HEIGHTS_MAX: Final = 1_000_000
_log = structlog.get_logger()


class FollowerStatus(NamedTuple):
    """How far it has come."""

    height: Height
    peers_height: Height
    here: int
    """Heights whose bytes are on this machine."""
    fault: str
    """Why no peer could be asked; empty where one could."""


class FollowerProcess:
    """One follower, its files, and the processes that compute KZG."""

    def __init__(
        self, config: Config, urls: Sequence[str], keys: Sequence[bytes], token: str | None, ca: Path | None
    ) -> None:
        self._store = SqliteFollowerStore(config.data / FILE)
        self._kzg = KzgPool(config.archive.kzg_processes)
        self._peers = HttpPeers(urls, token, ca)
        self._archive = _reader(config)
        parts = FollowerParts(
            store=self._store,
            files=BlobFolder(config.data / "blobs"),
            kzg=self._kzg,
            archive=self._archive,
            signer=None,
            verify=verify,
            address_of=address_of,
            signatures=self._kzg,
        )
        policy = config.policy
        trust = FollowerTrust(ChainId(policy.chain_id), policy.network, keys)
        self.follower = BlobFollower(parts, trust, policy.archive)
        self.follower.connect(self._peers)
        self._server: FollowerServer | None = None

    async def run(self, stopped: asyncio.Event, *, once: bool) -> FollowerStatus:
        """Until it is stopped; with `once`, until the peers have nothing more that is good.

        What they have is asked before: a block that becomes final meanwhile is not one that was refused.
        """
        peers_height = (await self.status()).peers_height if once else None
        while not stopped.is_set():
            before = await self.follower.final_height()
            try:
                await self.follower.run_once()
            except Unavailable as fault:
                if once:
                    raise
                _log.warning("follow_failed", reason=str(fault), hint="it is tried again")
            if (height := await self.follower.final_height()) != before:
                _log.info("followed", height=height)
            if once:
                break
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), self.follower.interval_ms / 1_000)
        status = await self.status()
        return status if peers_height is None else status._replace(peers_height=peers_height)

    async def serve(self, host: str, port: int, token: str) -> None:
        """Let others ask for what is here: nodes that repair, and followers."""
        if not token:
            raise Unavailable("SEC-001", "the token is empty", "write one into the file")
        self._server = FollowerServer(self.follower, token, host, port)
        await self._server.open()
        _log.info("follower_listening", host=host, port=self._server.port)

    async def status(self) -> FollowerStatus:
        heights, fault = list[Height](), ""
        for peer in self._peers.names():
            try:
                heights.append(await self._peers.final_height(peer))
            except Unavailable as away:
                fault = away.message
        here = await self._store.heights_here(Height(0), HEIGHTS_MAX)
        fault = "" if heights else fault
        return FollowerStatus(await self.follower.final_height(), max(heights, default=Height(0)), len(here), fault)

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()
        await self._kzg.close()
        if self._archive is not None:
            await self._archive.close()
        await self._store.close()


def _reader(config: Config) -> ArchiveReader | None:
    return None if config.archive.provider is ProviderKind.NONE else make_provider(config.archive, config.data)


async def follower_view(config: Config, height: int) -> dict[str, Any]:
    """SYN-002: what a follower has of a block, here or pruned or absent; the last one where none is named."""
    store = SqliteFollowerStore(config.data / FILE, is_reader=True)
    try:
        known = await store.chain()
        last = Height(0) if known is None else known.head.header.height
        if not 0 <= height <= last:
            raise Unavailable(
                "SYN-001", f"this follower ends at block {last}", "holdfast follow run gets the next ones"
            )
        blobs = await store.blobs(Height(height or last))
        here = await store.heights_here(Height(0), HEIGHTS_MAX)
    finally:
        await store.close()
    rows = [
        {
            "number": blob.number,
            "bytes": blob.bytes_status.value,
            "status": blob.status.value.lower(),
            "assurance": blob.assurance,
            "by": blob.archived_by.hex(),
            "locator": blob.locator or blob.reason,
        }
        for blob in blobs
    ]
    return {"last": last, "height": height or last, "heights_here": len(here), "blobs": rows}
