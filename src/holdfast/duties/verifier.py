"""The verifier: gives the verdict on results that were handed in, by the method that the job asked for (PRF-002).

What waits for a verdict is in the state, so that a restart forgets none. Cheap methods judge many proofs in one hop to
a thread; those that compute have processes of their own. A method that fails is asked again, and then the proof is
refused without blame: nothing that a verifier does can stop the node or cost a provider its stake.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from holdfast.core.da import commitment_of
from holdfast.core.proof.acts import REASONS_MAX, Judge, Trouble
from holdfast.core.proof.envelope import unpack
from holdfast.core.proof.finding import Case, Finding, Method, Where
from holdfast.core.refusal import Corrupt, Refused, Unavailable
from holdfast.core.values import LeaseId
from holdfast.engine import read
from holdfast.engine.loop import Engine
from holdfast.ports import Blobs

LOT: Final = 64
"""So many cheap proofs are judged in one hop to a thread."""
LOTS_AT_ONCE: Final = 2
ALONE_AT_ONCE: Final = 4
"""So many proofs that take computing are in memory, with their outputs, at a time."""
AHEAD: Final = 1_024
"""So many cheap ones that have no room yet are passed over to find one that takes computing, and not all of them."""
TRIES: Final = 3
CHANCE_BYTES: Final = 32
NOT_HELD: Final = "the node does not hold the output any more"
_log = structlog.get_logger()

Heavy = Callable[[Method, Case], Awaitable[Finding]]
"""Runs a method where it can be killed; raises where it failed."""


class Verifier:
    """Looks at what waits whenever something was decided; bounded in how much it takes on at a time."""

    def __init__(
        self,
        engine: Engine,
        methods: Mapping[str, Method],
        blobs: Blobs | None = None,
        heavy: Heavy | None = None,
        tries: int = TRIES,
    ) -> None:
        self._engine, self._methods, self._blobs = engine, methods, blobs
        self._heavy, self._tries = heavy or _in_a_thread, tries
        self._stirred = engine.stirred.subscribe()
        self._at_work: set[LeaseId] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._lots = self._alone = 0

    async def run(self) -> None:
        try:
            while True:
                self._look()
                await self._stirred.wait()
                self._stirred.clear()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _look(self) -> None:
        state, cheap = self._engine.state, list[LeaseId]()
        room = LOT * (LOTS_AT_ONCE - self._lots)
        for lease_id in state.submissions:
            if lease_id in self._at_work:
                continue
            method = self._methods.get(state.queue.jobs[state.leases.by_id[lease_id].job_id].proof)
            if method is None or method.where is Where.THREAD:
                cheap.append(lease_id)
                if len(cheap) >= room + (AHEAD if self._alone < ALONE_AT_ONCE else 0):
                    break
            elif self._alone < ALONE_AT_ONCE:
                self._alone += 1
                self._begin(self._judge_alone(lease_id, method), [lease_id])
        cheap = cheap[:room]
        while cheap:
            lot, cheap = cheap[:LOT], cheap[LOT:]
            self._lots += 1
            self._begin(self._judge_lot(lot), lot)

    def _begin(self, work: Awaitable[None], leases: list[LeaseId]) -> None:
        self._at_work.update(leases)

        async def judge() -> None:
            try:
                await work
            except Unavailable as fault:  # the engine stirs when it is back
                _log.info("no verdict yet", because=str(fault))
            else:
                self._stirred.set()  # there is room again
            finally:
                self._at_work.difference_update(leases)

        task = asyncio.create_task(judge(), name="verdict")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------------------------------ judging

    async def _judge_lot(self, leases: list[LeaseId]) -> None:
        try:
            cases = [(lease_id, self._case(lease_id)) for lease_id in leases]
            told = [(lease_id, case) for lease_id, case in cases if case is not None]
            verdicts = await asyncio.to_thread(self._find_all, told)
            await self._tell_all(verdicts)
        finally:
            self._lots -= 1

    def _find_all(self, cases: list[tuple[LeaseId, Case]]) -> list[Judge]:
        """In a thread: one hop for all of them."""
        return [self._verdict(lease_id, case) for lease_id, case in cases]

    def _verdict(self, lease_id: LeaseId, case: Case) -> Judge:
        name = case.envelope.method
        method = self._methods.get(name)
        if method is None:
            says = f"no verifier for {name!r:.40} on this node"
            return Judge(lease_id, False, says, trouble=Trouble.NO_VERIFIER)
        try:
            return _judged(lease_id, method.find(case))
        except Exception as fault:
            _log.exception("a verifier failed", method=name)
            return _troubled(lease_id, f"the verifier raised {type(fault).__name__}")

    async def _judge_alone(self, lease_id: LeaseId, method: Method) -> None:
        try:
            if (case := self._case(lease_id)) is not None:
                await self._judge_patiently(lease_id, method, case)
        finally:
            self._alone -= 1

    async def _judge_patiently(self, lease_id: LeaseId, method: Method, case: Case) -> None:
        verdict = Judge(lease_id, False, trouble=Trouble.VERIFIER_FAILED)
        for _ in range(self._tries):
            try:
                whole = await self._with_what_it_needs(lease_id, method, case)
                verdict = _judged(lease_id, await self._heavy(method, whole))
                break
            except Unavailable:
                raise
            except Exception as fault:  # whatever goes wrong in there is the verifier's, not the provider's
                verdict = _troubled(lease_id, f"the verifier failed: {fault}")
                _log.warning("a verifier failed", method=case.envelope.method, because=str(fault))
        await self._tell_all([verdict])

    async def _tell_all(self, verdicts: list[Judge]) -> None:
        """Each by itself: a file that cannot be read keeps nobody else waiting for its verdict."""
        told, fault = list[Judge](), None
        for each in verdicts:
            try:
                told.append(await self._with_output(each))
            except Corrupt as damage:
                told.append(_troubled(each.lease_id, f"{NOT_HELD}: {damage.says}"))
            except Unavailable as trouble:
                fault = trouble
        outcomes = await self._engine.submit_many(told)
        for judged, no in zip(told, outcomes, strict=True):
            if isinstance(no, Refused):  # the proof is good, but not for this task: it is worth nothing here
                await self._engine.submit(Judge(judged.lease_id, False, no.says))
        if fault is not None:
            raise fault

    # ------------------------------------------------------------------------------------ what is looked at

    def _case(self, lease_id: LeaseId) -> Case | None:
        """The proof and whose it must be; None where nothing waits for a verdict any more."""
        state = self._engine.state
        raw, lease = state.submissions.get(lease_id), state.leases.by_id.get(lease_id)
        if raw is None or lease is None:
            return None
        chance = secrets.token_bytes(CHANCE_BYTES)  # a beacon is known to whoever hands in before the next block
        return Case(unpack(raw), state.providers[lease.provider_id].signing_key, chance=chance)

    async def _with_what_it_needs(self, lease_id: LeaseId, method: Method, case: Case) -> Case:
        """Payload and output are read only for who looks at them; bytes that are not there are nobody's fault."""
        lease = self._engine.state.leases.by_id.get(lease_id)
        if lease is None or lease.submitted is None:
            raise LookupError("nothing waits for this verdict any more")
        payload, output = b"", None
        if method.needs_payload:
            payload = await read.spec(self._engine, self._engine.state.queue.jobs[lease.job_id])
        if method.needs_output:
            output = await self._blobs.read(lease.submitted) if self._blobs is not None else None
            if output is None:
                raise LookupError("the node does not hold the output")
        return Case(case.envelope, case.public, payload, output, case.chance)

    async def _with_output(self, judged: Judge) -> Judge:
        """TIER-001: small outputs are kept in the store, too, where policy says so; DA-001: others are pinned."""
        lease = self._engine.state.leases.by_id.get(judged.lease_id)
        most = self._engine.policy.result.max_inline_bytes
        if not judged.is_good or self._blobs is None or lease is None or lease.submitted is None:
            return judged
        caller = self._engine.state.queue.jobs[
            lease.job_id
        ].caller.encode()  # a job that is cancelled meanwhile is gone
        output = await self._blobs.read(lease.submitted)  # reading checks them
        if output is None:  # RCV-001: whoever hands in the next one brings them again
            return _troubled(judged.lease_id, NOT_HELD)
        if lease.submitted_size <= most:
            return Judge(judged.lease_id, judged.is_good, judged.reasons, output if most else None)
        pinned = await asyncio.to_thread(commitment_of, caller, output)
        return Judge(judged.lease_id, judged.is_good, judged.reasons, da_commitment=pinned)


def _judged(lease_id: LeaseId, found: Finding) -> Judge:
    """A plug-in may answer anything: what is no answer is its own trouble."""
    if type(found.is_good) is not bool:
        raise TypeError(f"it found {found.is_good!r:.40}, which is neither yes nor no")
    return Judge(lease_id, found.is_good, _said(found.reasons))


def _troubled(lease_id: LeaseId, says: str) -> Judge:
    return Judge(lease_id, False, _said(says), trouble=Trouble.VERIFIER_FAILED)


def _said(reasons: object) -> str:
    """As it can be stored: half a character in it would stop the owner when its batch is written."""
    return str(reasons)[:REASONS_MAX].encode(errors="replace").decode()


async def _in_a_thread(method: Method, case: Case) -> Finding:
    """Where a node has no processes for it, as in tests."""
    return await asyncio.to_thread(method.find, case)
