"""`holdfast.provider.v1`: how agents register, get work and hand it in; every word of theirs is signed (PRV-003)."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from typing import Final

from holdfast.core.canon import canonical
from holdfast.core.proof.decide import CompletionIgnored
from holdfast.core.proof.envelope import Envelope
from holdfast.core.provider.acts import Register
from holdfast.core.provider.decide import kinds_of
from holdfast.core.provider.record import provider_id, stake_min
from holdfast.core.refusal import Refused
from holdfast.core.state import State
from holdfast.core.values import AccountId, ProviderId
from holdfast.doors.completing import completion, is_signed
from holdfast.doors.grpc.agentdesk import NONCE_BYTES, AgentDesk
from holdfast.doors.grpc.handling import Context
from holdfast.doors.grpc.outputs import put_output
from holdfast.doors.grpc.service import Service
from holdfast.doors.grpc.work import WorkDesk
from holdfast.wire import acts
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2_grpc

NAME: Final = "holdfast.provider.v1.ProviderService"
NONCE_MS: Final = 60_000
NONCES_MAX: Final = 16_384
BODY_BYTES_MAX: Final = 64 << 10
_STALE: Final = Refused(
    "PRV-003", "the nonce is not known, was used or is too old", "ask for a challenge again", "Unauthorized"
)
_UNSIGNED: Final = Refused("PRV-003", "the signature does not fit", "sign with the provider's key", "Unauthorized")


class Nonces:
    """Challenges that wait for an answer; each is good once and for a minute. The oldest make room for new ones."""

    def __init__(self) -> None:
        self._until_ms: dict[bytes, int] = {}

    def make(self, now_ms: int) -> bytes:
        nonce = secrets.token_bytes(NONCE_BYTES)
        if len(self._until_ms) >= NONCES_MAX:
            del self._until_ms[next(iter(self._until_ms))]
        self._until_ms[nonce] = now_ms + NONCE_MS
        return nonce

    def is_good(self, nonce: bytes, now_ms: int) -> bool:
        return now_ms < self._until_ms.get(nonce, 0)

    def use(self, nonce: bytes, now_ms: int) -> bool:
        """Whether it was good; it never is again."""
        return now_ms < self._until_ms.pop(nonce, 0)


class ProviderService(provider_pb2_grpc.ProviderServiceServicer):
    """Each call checks what was signed and submits one command; the stream of work has a file of its own."""

    def __init__(self, at: AgentDesk) -> None:
        self._at, self._nonces, self.work = at, Nonces(), WorkDesk(at)

    async def GetChallenge(  # noqa: N802 - the name of the method
        self, _: pb.GetChallengeRequest, __: Context
    ) -> pb.GetChallengeResponse:
        self._at.check_owner()
        now_ms = self._at.engine.now_ms()
        chain_id = self._at.engine.policy.chain_id
        return pb.GetChallengeResponse(nonce=self._nonces.make(now_ms), chain_id=chain_id, time_ms=now_ms)

    async def Register(  # noqa: N802
        self, request: pb.RegisterRequest, _: Context
    ) -> pb.RegisterResponse | Refused:
        self._at.check_owner()
        if len(request.body) > BODY_BYTES_MAX:
            return Refused("PRV-003", f"a body of {len(request.body)} bytes", f"at most {BODY_BYTES_MAX}", "TooLarge")
        told = acts.read_registration(request.body)
        if isinstance(told, Refused):
            return told
        now_ms = self._at.engine.now_ms()
        if not self._nonces.is_good(told.nonce, now_ms):
            return _STALE
        signed = acts.to_sign_registration(request.body)
        if no := await self._at.why_not_signed(told.public, signed, request.signature):
            return no
        if not self._nonces.use(told.nonce, now_ms):  # asked again: the same message may have been checked meanwhile
            return _STALE
        outcome = await self._at.desk.submit(_command(told))
        return outcome if isinstance(outcome, Refused) else await self._registered(provider_id(told.public))

    async def _registered(self, id_: ProviderId) -> pb.RegisterResponse:
        def standing(state: State) -> pb.RegisterResponse:
            found = state.providers[id_]
            enough = stake_min(kinds_of(found.capabilities), state.policy.provider)
            return pb.RegisterResponse(provider_id=id_, status=found.status, stake=found.stake, stake_min=enough)

        return await self._at.engine.ask(standing)

    async def Work(  # noqa: N802
        self, _: AsyncIterator[pb.WorkRequest], context: Context
    ) -> Refused | None:
        return await self.work.serve(context)

    async def PutOutput(  # noqa: N802
        self, requests: AsyncIterator[pb.PutOutputRequest], _: Context
    ) -> pb.PutOutputResponse | Refused:
        return await put_output(self._at, requests)

    async def Complete(  # noqa: N802
        self, request: pb.CompleteRequest, _: Context
    ) -> pb.CompleteResponse | Refused:
        self._at.check_owner()
        proof = Envelope(request.type, request.method, request.body, request.signature)
        if not await self._at.in_pool(is_signed, self._at.verify, request.public, proof):
            return _UNSIGNED
        command = await completion(self._at.blobs, provider_id(request.public), proof)
        if isinstance(command, Refused):
            return command
        outcome = await self._at.engine.submit(command)
        if isinstance(outcome, Refused):
            return outcome
        if isinstance(outcome.fact, CompletionIgnored):
            return Refused("RCV-002", "another result was handed in for this lease before", "the first one counts")
        return pb.CompleteResponse(event=outcome.event, is_repeat=outcome.is_repeat)


def _command(told: acts.Registration) -> Register:
    words = (told.public, told.name, AccountId(told.account), canonical(told.capabilities), told.region)
    return Register(*words, told.price, told.slots, told.attested_until_ms)


def provider_service(at: AgentDesk) -> Service:
    """Ready to be plugged into the door."""
    return Service(NAME, ProviderService(at), provider_pb2_grpc.add_ProviderServiceServicer_to_server)
