"""Brings the input of a job to the lease's folder (JOB-003): resumed where it broke off, hashed before it is used."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import structlog

from holdfast.agent.settings import AgentSettings
from holdfast.agent.transport.node_client import NodeClient
from holdfast.core.base.errors import Unavailable
from holdfast.core.job.input_ref import InputRef, input_hasher
from holdfast.ports import Clock
from holdfast.shipping.backoff import Backoff, Draw
from holdfast.shipping.node_connection import ProtocolError, RpcFault, describe_fault, refusal_of

INPUT: Final = "input"
DAMAGED_MAX: Final = 3
"""How often bytes of another digest may come before the lease is failed."""
PART_BYTES: Final = 1 << 20
_log = structlog.get_logger()


class InputDamaged(Exception):
    """The bytes that come are not those that the job names."""


class InputFetcher:
    """Downloads inputs; cancelled when the lease ends."""

    def __init__(self, settings: AgentSettings, client: NodeClient, clock: Clock, draw: Draw) -> None:
        self._settings, self._client, self._clock, self._draw = settings, client, clock, draw

    async def fetch(self, lease_id: bytes, ref: InputRef, folder: Path) -> Path:
        """The file with the input; `folder` is the lease's own. Retries until it is there."""
        backoff = Backoff(self._settings.retry_base_ms, self._settings.retry_cap_ms, self._draw)
        target, part, damaged = folder / INPUT, folder / f"{INPUT}.part", 0
        while not await asyncio.to_thread(target.exists):
            try:
                await self._append(lease_id, ref, part)
                if await asyncio.to_thread(_keep, part, target, ref):
                    break
                damaged += 1
                if damaged >= DAMAGED_MAX:
                    raise InputDamaged(f"the input {ref.digest} came with other bytes {damaged} times")
            except (RpcFault, ProtocolError, TimeoutError) as fault:
                refusal = refusal_of(fault) if isinstance(fault, RpcFault) else None
                reason = describe_fault(fault) if isinstance(fault, RpcFault) else str(fault)
                _log.debug("input_not_fetched", lease=lease_id.hex(), reason=reason, name=refusal and refusal.name)
            except OSError as fault:
                raise Unavailable("JOB-003", f"{fault.strerror}: {fault.filename}", "check the disk") from fault
            await backoff.pause(self._clock)
        return target

    async def _append(self, lease_id: bytes, ref: InputRef, part: Path) -> None:
        offset = await asyncio.to_thread(_size_of, part)
        if offset >= ref.size:
            return
        async for raw in self._client.get_input(lease_id, offset):
            offset += len(raw)
            if offset > ref.size:
                return
            await asyncio.to_thread(_write, part, raw)


def _size_of(part: Path) -> int:
    part.touch(exist_ok=True)
    return part.stat().st_size


def _write(part: Path, raw: bytes) -> None:
    with part.open("ab") as file:
        file.write(raw)


def _keep(part: Path, target: Path, ref: InputRef) -> bool:
    """Whether all bytes are there and are the named ones; others are deleted."""
    size = part.stat().st_size
    if size < ref.size:
        return False
    hasher = input_hasher(size)
    with part.open("rb") as file:
        while raw := file.read(PART_BYTES):
            hasher.update(raw)
    if size != ref.size or hasher.digest() != ref.digest_bytes:
        part.unlink()
        return False
    part.rename(target)
    return True
