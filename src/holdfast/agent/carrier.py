"""Carrying a lease through: execute, keep the output, hand it over, tell it as evidence, await the verdict (EVD-005).

Every step begins from what is on disk, so that a crash at any point only repeats the step it fell into.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import structlog

from holdfast.agent.backoff import Backoff, Draw
from holdfast.agent.client import NodeClient
from holdfast.agent.dial import Fault, refusal_of, said
from holdfast.agent.execute import REASON_MAX, Failed, execute
from holdfast.agent.executors import Registry
from holdfast.agent.held import Held, Word
from holdfast.agent.settings import AgentSettings, Signer
from holdfast.agent.shipper import Shipper
from holdfast.agent.work import Outcome, WorkFolder
from holdfast.core.proof.envelope import ProofType, body_of, signed_bytes
from holdfast.core.refusal import Refused, Unavailable
from holdfast.core.result.ids import result_digest
from holdfast.ports import Clock
from holdfast.spool.record import BLOCK_FENCE
from holdfast.wire.acts import to_sign_failure

ACCEPTED, STARTED, PROGRESS = "LEASE_ACCEPTED", "EXECUTION_STARTED", "PROGRESS"
READY, COMPLETED, FAILED = "OUTPUT_READY", "LEASE_COMPLETED", "LEASE_FAILED"
LOST: Final = frozenset({"LeaseLost", "NotFound"})
"""Names under which the node says that a lease is over."""
UNWANTED: Final = frozenset({"InvalidParams", "InvalidRequest", "TooLarge", "Forbidden"})
"""Names under which it says that it will never take these bytes; all others may pass."""
_log = structlog.get_logger()


class Carrier:
    """Does with a lease what is left to do."""

    def __init__(
        self,
        settings: AgentSettings,
        registry: Registry,
        work: WorkFolder,
        shipper: Shipper,
        client: NodeClient,
        signer: Signer,
        clock: Clock,
        draw: Draw,
    ) -> None:
        self._settings, self._registry, self._work = settings, registry, work
        self._shipper, self._client, self._signer, self._clock = shipper, client, signer, clock
        self._draw = draw

    async def carry(self, held: Held) -> None:
        """Until nothing of the lease is needed any more: a verdict, a loss, a failure that the node knows of."""
        through = asyncio.create_task(self._until_through(held), name=f"lease {held.id.hex()[:8]}")
        first: list[asyncio.Future[Any]] = [through, held.ended]
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        finally:
            through.cancel()
            await asyncio.gather(through, return_exceptions=True)
        end = held.ended.result()
        _log.info("lease over", lease=held.id.hex(), how=end.how, reason=end.reason)
        if held.told is None and end.how != "VERDICT":
            await self._fence(held, end.how, end.reason)
        elif held.is_telling and held.outcome is not None:  # the verdict was here before the spool had told of it
            await self._fence(held, held.outcome.payload_type, "")
        try:
            await self._work.remove(held.id)
        except Unavailable as fault:  # the next start finds it, and the node says that it is over
            _log.error("a lease's folder stays", lease=held.id.hex(), because=str(fault))

    async def _until_through(self, held: Held) -> None:
        """A disk that fails is tried again: the lease is not lost while its offer is on it."""
        backoff = Backoff(self._settings.retry_base_ms, self._settings.retry_cap_ms, self._draw)
        while not held.ended.done():
            try:
                await self._through(held)
            except Unavailable as fault:
                _log.error("work waits for the disk", lease=held.id.hex(), because=str(fault))
                await backoff.pause(self._clock)
            except Exception as fault:
                _log.exception("a fault of ours", lease=held.id.hex())
                await self._decide(held, self._failure(held, f"AGENT_ERROR: {type(fault).__name__}"))

    async def _through(self, held: Held) -> None:
        if held.outcome is None:
            if not held.has_output:
                await self._execute(held)
            if held.outcome is None:
                await self._hand_over(held)
        if held.told is None:
            await self._tell(held)
        if held.outcome is not None and held.outcome.payload_type == FAILED and held.told is not None:
            await self._shipper.delivered(held.told)
            held.end(FAILED, str(held.outcome.payload["reason"]))
        await asyncio.shield(held.ended)

    # -------------------------------------------------------------------------------------------- steps

    async def _execute(self, held: Held) -> None:
        if held.is_resumed and held.taken.t_deadline_ms <= self._clock.wall_ms() + self._client.offset_ms:
            await asyncio.shield(held.word)  # its time seems to be over: the node has the last word on that
        found = self._registry.find(held.taken.kind, held.taken.payload)
        if isinstance(found, Refused):
            return await self._decide(held, self._failure(held, f"NOT_OFFERED: {found.says}"))
        held.begun_ms = self._clock.monotonic_ms()
        await self._shipper.emit(STARTED, {"lease_id": held.id.hex(), "attempt": held.taken.attempt})
        output = await execute(*found, self._settings.execution_ms_max)
        if isinstance(output, Failed):
            return await self._decide(held, self._failure(held, output.reason))
        await self._work.keep_output(held.id, output)
        held.has_output = True
        return None

    async def _hand_over(self, held: Held) -> None:
        """EVD-006: the bytes go to the node before anything says that the work is done, and stay here all the same."""
        output = await self._work.output(held.id)
        digest, size = result_digest(output), len(output)
        if self._shipper.told(READY, held.id) is None:
            await self._shipper.emit(READY, {"lease_id": held.id.hex(), "digest": digest.hex(), "size": size})
        no = await self._uploaded(held, digest, output)
        if no is not None:
            return await self._decide(held, self._failure(held, f"OUTPUT_REFUSED: {no.name}: {no.says}"))
        return await self._decide(held, self._completion(held, digest, size))

    async def _uploaded(self, held: Held, digest: bytes, output: bytes) -> Refused | None:
        """Again and again until the node has the bytes or does not want them."""
        backoff = Backoff(self._settings.retry_base_ms, self._settings.retry_cap_ms, self._draw)
        while True:
            try:
                await self._client.put_output(held.id, digest, output)
                return None
            except Fault as fault:
                no = refusal_of(fault)
                if no is not None and no.name in LOST:
                    held.end("LOST", no.says)
                if no is not None and (no.name in LOST or no.rule == "RCV-001"):
                    await asyncio.shield(held.ended)  # over, or handed in before: the node has the last word
                if no is not None and no.name in UNWANTED:
                    return no
                _log.info("an output waits", lease=held.id.hex(), because=said(fault))
                await backoff.pause(self._clock)

    async def _decide(self, held: Held, outcome: Outcome) -> None:
        """From here on the lease has one outcome, whatever happens."""
        await self._work.keep_outcome(held.id, outcome)
        held.outcome = outcome

    async def _tell(self, held: Held) -> None:
        """Spool the outcome once. Where an earlier process may have done so, its spool or the node knows."""
        outcome = held.outcome
        assert outcome is not None
        held.told = self._shipper.told(outcome.payload_type, held.id)
        if held.told is not None:
            return
        if held.is_in_doubt and await asyncio.shield(held.word) is Word.SUBMITTED:
            return
        held.is_telling = True
        held.told = await self._shipper.spool(outcome.payload_type, outcome.payload)
        await self._fence(held, outcome.payload_type, "")
        held.is_telling = False

    async def _fence(self, held: Held, status: str, reason: str) -> None:
        payload: dict[str, Any] = {"block_id": held.id.hex(), "actual_end_utc_ms": self._clock.wall_ms()}
        await self._shipper.emit(BLOCK_FENCE, payload | {"status": status, "reason": reason})

    # -------------------------------------------------------------------------------------------- outcomes

    def _completion(self, held: Held, digest: bytes, size: int) -> Outcome:
        taken, kind = held.taken, ProofType[held.taken.kind]
        took_ms = self._clock.monotonic_ms() - held.begun_ms if held.begun_ms else 0
        body = body_of(taken.task_id, held.id, self._client.id, digest, size, {"took_ms": took_ms})
        signature = self._signer.sign(signed_bytes(kind, taken.proof, body))
        told = {"lease_id": held.id.hex(), "type": int(kind), "method": taken.proof}
        return Outcome(COMPLETED, told | {"body": body.hex(), "signature": signature.hex()})

    def _failure(self, held: Held, reason: str) -> Outcome:
        reason = reason.encode("utf-8", "replace").decode()[:REASON_MAX]
        signature = self._signer.sign(to_sign_failure(held.id, reason))
        return Outcome(FAILED, {"lease_id": held.id.hex(), "reason": reason, "signature": signature.hex()})
