"""What all calls of agents need: the engine, the blobs, a thread pool for signatures, and notice of the closing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

import structlog

from holdfast.api.attestation import BUILT_IN, Attestor, attestation_refused
from holdfast.api.grpc.rate_interceptor import ActRateLimiter, UnprovenStreams
from holdfast.api.grpc.services.output_limit import OutputLimit
from holdfast.api.grpc.settings import GrpcSettings
from holdfast.api.limits.evidence_budget import EvidenceBudget
from holdfast.api.node_access import NodeAccess
from holdfast.api.signatures import why_not_signed, why_not_signed_proof
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.base.values import ProviderId, VerifySignature
from holdfast.core.proof.envelope import Envelope
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import EngineStatus
from holdfast.engine.queries.providers import HasStake, ResolveSigner
from holdfast.ports import Blobs
from holdfast.wire.group_signatures import GroupVerifier
from holdfast.wire.signed_messages import Attestation

POOL_THREADS: Final = 2
WITHOUT_STAKE: Final = "all without a stake"
ATTEST_S: Final = 30.0
"""How long a plug-in may take to check an attestation."""
T = TypeVar("T")
_log = structlog.get_logger()


class AgentContext:
    """One for all agent services of a server. It belongs to one event loop."""

    def __init__(
        self,
        node: NodeAccess,
        engine: Engine,
        blobs: Blobs,
        verify: VerifySignature,
        rate_limiter: ActRateLimiter,
        attestors: Mapping[str, Attestor] = BUILT_IN,
        unproven: UnprovenStreams | None = None,
        evidence_budget: EvidenceBudget | None = None,
    ) -> None:
        self.node, self.engine, self.blobs, self.verify, self.rate_limiter = node, engine, blobs, verify, rate_limiter
        self.attestors, self.output_limit = attestors, OutputLimit()
        self.evidence_budget, self.log_signals = evidence_budget, node.log_signals
        self.unproven = unproven or UnprovenStreams(GrpcSettings().address_unproven_max)
        self.on_proven: Callable[[str, str], None] = lambda peer, key: None
        self._pool = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="signatures")
        self._attestor_pool = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="attestors")
        self._closing: asyncio.Event | None = None
        self._on_closing: dict[object, Callable[[], None]] = {}
        self._close_watcher: asyncio.Task[None] | None = None

    def check_owner(self) -> None:
        """Agents talk to the owner: a standby decides nothing and does not see commands in flight."""
        if self.node.forward_to_owner is not None or self.engine.status is not EngineStatus.RUNNING:
            hint = "connect to the owner of the journal, or retry in a moment"
            raise Unavailable("ENG-006", "this node does not own the journal", hint)

    async def in_pool(self, work: Callable[..., T], *args: object) -> T:
        """Run work that takes a while, such as signature checks and parsing, off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    async def why_not_signed(self, public: bytes, message: bytes, signature: bytes) -> Refused | None:
        """PRV-003: the key has signed the message, and it is its provider's current key."""
        refusal = await self.in_pool(why_not_signed, GroupVerifier(self.verify), public, message, signature)
        return refusal or self._why_not_current(public)

    async def why_not_signed_proof(self, public: bytes, proof: Envelope) -> Refused | None:
        """PRV-003: the same for a proof."""
        refusal = await self.in_pool(why_not_signed_proof, GroupVerifier(self.verify), public, proof)
        return refusal or self._why_not_current(public)

    def _why_not_current(self, public: bytes) -> Refused | None:
        return self.engine.query_undurable(ResolveSigner(public)).refusal

    async def why_not_accepted_by_attestor(self, attestation: Attestation) -> Refused | None:
        """PRV-001: the verdict of the attestor. A plug-in that hangs delays no signature; its failure is no verdict."""
        pool = self._pool if attestation.verifier in BUILT_IN else self._attestor_pool
        attestor = self.attestors[attestation.verifier]
        try:
            async with asyncio.timeout(ATTEST_S):
                reason = await asyncio.get_running_loop().run_in_executor(pool, attestor, attestation, self.verify)
        except Exception as fault:
            _log.warning("attestor_failed", attestor=attestation.verifier, reason=repr(fault))
            message = f"the attestor {attestation.verifier!r:.40} did not answer"
            raise Unavailable("PRV-001", message, "register again in a moment") from fault
        return attestation_refused(reason) if reason else None

    def provider_of(self, public: bytes) -> ProviderId:
        """The provider that this key belongs to; its id outlives a rotation of the key (PRV-003)."""
        return self.engine.query_undurable(ResolveSigner(public)).provider_id

    def note_proven(self, peer: str, id_: ProviderId) -> None:
        """SEC-002: this connection is a provider's. Registering is free: those without a stake share a few places."""
        self.on_proven(peer, id_.hex() if self.engine.query_undurable(HasStake(id_)) else WITHOUT_STAKE)

    # ------------------------------------------------------------------------------------ closing

    def close_with(self, closing: asyncio.Event) -> None:
        """Open streams end when this event is set: `GrpcServer.closing`."""
        self._closing = closing

    @contextmanager
    def until_closing(self, on_closing: Callable[[], None]) -> Iterator[None]:
        """Inside, `on_closing` is called when the server begins to close; one task waits for all streams."""
        key = object()
        self._on_closing[key] = on_closing
        if self._close_watcher is None and self._closing is not None:
            self._close_watcher = asyncio.create_task(self._notify_all(self._closing), name="agent streams closing")
        try:
            yield
        finally:
            del self._on_closing[key]
            if not self._on_closing and self._close_watcher is not None:
                self._close_watcher.cancel()
                self._close_watcher = None

    async def _notify_all(self, closing: asyncio.Event) -> None:
        await closing.wait()
        for on_closing in list(self._on_closing.values()):
            on_closing()


def refuse_unregistered(id_: ProviderId) -> Refused:
    return Refused("PRV-001", f"no provider {id_.hex()}", "register first", "NotFound")
