"""The verifier: gives the verdict on results that were handed in, by the method that the job asked for (PRF-002)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog

from holdfast.core.proof.decide import Judge
from holdfast.core.proof.envelope import Envelope, signed_bytes, unpack
from holdfast.core.refusal import Refused, Unavailable
from holdfast.core.values import LeaseId
from holdfast.engine.loop import Engine
from holdfast.ports import Blobs

_log = structlog.get_logger()

Verify = Callable[[bytes, bytes, bytes], bool]
"""Public key, message, signature."""


class Finding(msgspec.Struct, frozen=True):
    """What a verifier found, and why."""

    is_good: bool
    reasons: str


Method = Callable[[Envelope, bytes], Finding]
"""The proof and the leased provider's public key to a finding. It runs in a thread: it may take its time."""


def attested(verify: Verify) -> Method:
    """The leased provider's signature over the body is the proof."""

    def find(envelope: Envelope, public: bytes) -> Finding:
        message = signed_bytes(envelope.type, envelope.method, envelope.body)
        if verify(public, message, envelope.signature):
            return Finding(True, "signed by the leased provider")
        return Finding(False, "the signature is not the leased provider's")

    return find


class Verifier:
    """What waits for a verdict is in the state, so that a restart forgets none; a verifier that fails refuses."""

    def __init__(self, engine: Engine, methods: Mapping[str, Method], blobs: Blobs | None = None) -> None:
        self._engine, self._methods, self._blobs = engine, methods, blobs
        self._stirred = engine.stirred.subscribe()
        self._at_work: dict[LeaseId, asyncio.Task[None]] = {}

    async def run(self) -> None:
        while True:
            for lease_id in [id_ for id_ in self._engine.state.submissions if id_ not in self._at_work]:
                task = asyncio.create_task(self._judge(lease_id), name="verdict")
                self._at_work[lease_id] = task
                task.add_done_callback(lambda _, id_=lease_id: self._at_work.pop(id_, None))  # type: ignore[misc]
            await self._stirred.wait()
            self._stirred.clear()

    async def _judge(self, lease_id: LeaseId) -> None:
        state = self._engine.state
        envelope = unpack(state.submissions[lease_id])
        public = state.providers[state.leases.by_id[lease_id].provider_id].public
        method = self._methods.get(envelope.method)
        try:
            if method is None:
                found = Finding(False, f"no verifier for {envelope.method!r:.40}")
            else:
                found = await asyncio.to_thread(method, envelope, public)
        except Exception:
            _log.exception("a verifier failed", method=envelope.method)
            found = Finding(False, "the verifier failed")
        try:
            output = await self._hot(lease_id) if found.is_good else None
            no = await self._engine.submit(Judge(lease_id, found.is_good, found.reasons, output))
            if isinstance(no, Refused):  # the proof is good, but not for this task: it is worth nothing here
                await self._engine.submit(Judge(lease_id, False, no.says))
        except Unavailable as fault:
            _log.info("no verdict yet", because=str(fault))

    async def _hot(self, lease_id: LeaseId) -> bytes | None:
        """TIER-001: small outputs are kept in the store, too, where policy says so; reading checks them."""
        lease = self._engine.state.leases.by_id.get(lease_id)
        most = self._engine.policy.result.max_inline_bytes
        if self._blobs is None or lease is None or lease.submitted is None or lease.submitted_size > most:
            return None
        return await self._blobs.read(lease.submitted) if most else None
