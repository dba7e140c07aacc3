"""`holdfast.provider.v1`: how agents register, get work and hand it in; every word of theirs is signed (PRV-003)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar

from holdfast.core import law
from holdfast.core.canon import canonical
from holdfast.core.proof.acts import CompletionIgnored
from holdfast.core.proof.envelope import Envelope
from holdfast.core.provider.acts import Drain, MoveProvider, Register, RotateSigner, Unstake
from holdfast.core.provider.decide import kinds_of
from holdfast.core.provider.record import ProviderAct, stake_min, why_not_key
from holdfast.core.refusal import Refused
from holdfast.core.state import State
from holdfast.core.values import AccountId, Amount, ProviderId
from holdfast.doors.attesting import why_not_attested
from holdfast.doors.completing import completion, is_signed
from holdfast.doors.grpc.agentdesk import AgentDesk
from holdfast.doors.grpc.challenge import Nonces
from holdfast.doors.grpc.handling import Context
from holdfast.doors.grpc.outputs import put_output
from holdfast.doors.grpc.service import Service
from holdfast.doors.grpc.work import WorkDesk
from holdfast.wire import acts
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2_grpc

NAME: Final = "holdfast.provider.v1.ProviderService"
Answering = acts.Registration | acts.Declaration
T = TypeVar("T", acts.Registration, acts.Declaration)
BODY_BYTES_MAX: Final = 64 << 10
_STALE: Final = Refused(
    "PRV-003", "the nonce is not known, was used or is too old", "ask for a challenge again", "Unauthorized"
)
_UNSIGNED: Final = Refused("PRV-003", "the signature does not fit", "sign with the provider's key", "Unauthorized")


class ProviderService(provider_pb2_grpc.ProviderServiceServicer):
    """Each call checks what was signed and submits one command; the stream of work has a file of its own."""

    def __init__(self, at: AgentDesk) -> None:
        self._at, self._nonces, self.work = at, Nonces(), WorkDesk(at)

    async def GetChallenge(  # noqa: N802 - the name of the method
        self, request: pb.GetChallengeRequest, _: Context
    ) -> pb.GetChallengeResponse:
        self._at.check_owner()
        now_ms = self._at.engine.now_ms()
        chain_id = self._at.engine.policy.chain_id
        nonce = self._nonces.make(now_ms, request.public)
        return pb.GetChallengeResponse(nonce=nonce, chain_id=chain_id, time_ms=now_ms)

    async def Register(  # noqa: N802
        self, request: pb.RegisterRequest, _: Context
    ) -> pb.RegisterResponse | Refused:
        told = self._read(request.body, acts.read_registration)
        if isinstance(told, Refused):
            return told
        signed = acts.to_sign_registration(request.body)
        if no := await self._why_not_answered(told, signed, request.signature):
            return no
        if no := await self._why_not_attested(told):
            return no
        outcome = await self._at.desk.submit(_command(told))
        return outcome if isinstance(outcome, Refused) else await self._registered(self._at.holder(told.public))

    def _read(self, body: bytes, read: Callable[[bytes], T | Refused]) -> T | Refused:
        """A signed body that answers a challenge; what cannot be is refused before anything is computed for it."""
        self._at.check_owner()
        if len(body) > BODY_BYTES_MAX:
            return Refused("PRV-003", f"a body of {len(body)} bytes", f"at most {BODY_BYTES_MAX}", "TooLarge")
        told = read(body)
        if isinstance(told, Refused):
            return told
        return told if self._nonces.is_good(told.nonce, self._at.engine.now_ms(), told.public) else _STALE

    async def _why_not_answered(self, told: Answering, signed: bytes, signature: bytes) -> Refused | None:
        """PRV-003: signed by the key that the nonce was made for, and for the first time."""
        if no := await self._at.why_not_signed(told.public, signed, signature):
            return no
        is_first = self._nonces.use(told.nonce, self._at.engine.now_ms(), told.public)
        return None if is_first else _STALE  # the same message may have been checked meanwhile

    async def _why_not_attested(self, told: acts.Registration) -> Refused | None:
        """PRV-001: who shows an attestation has it checked. Who shows none vouches for itself by the signature."""
        shown, at = told.attestation, self._at
        if shown is None:
            return None
        times = (at.engine.now_ms(), at.engine.policy.provider.attestation_skew_ms)
        if no := why_not_attested(shown, told.public, canonical(told.capabilities), times, at.attestors):
            return no
        return await at.why_not_vouched(shown)

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
        id_ = self._at.holder(request.public)
        if no := why_not_key(self._at.engine.state, id_, request.public):
            return no
        command = await completion(self._at.blobs, id_, proof)
        if isinstance(command, Refused):
            return command
        outcome = await self._at.engine.submit(command)
        if isinstance(outcome, Refused):
            return outcome
        if isinstance(outcome.fact, CompletionIgnored):
            return Refused("RCV-002", "another result was handed in for this lease before", "the first one counts")
        return pb.CompleteResponse(event=outcome.event, is_repeat=outcome.is_repeat)

    async def Declare(  # noqa: N802
        self, request: pb.DeclareRequest, _: Context
    ) -> pb.DeclareResponse | Refused:
        told = self._read(request.body, acts.read_declaration)
        if isinstance(told, Refused):
            return told
        make = _DECLARATIONS.get(told.act)
        if make is None:
            return Refused("PRV-003", f"no act {told.act[:40]!r}", " ".join(_DECLARATIONS), "InvalidParams")
        signed, at = acts.to_sign_declaration(request.body), self._at
        is_rotated = told.act == "rotate"
        if is_rotated and not await at.in_pool(at.verify, told.new_public, signed, request.new_signature):
            return Refused("PRV-003", "the new key has not signed it", "sign with both keys", "Unauthorized")
        if no := await self._why_not_answered(told, signed, request.signature):
            return no
        id_ = at.holder(told.public)
        outcome = await at.desk.submit(make(told, id_))
        if isinstance(outcome, Refused):
            return outcome
        status = await at.engine.ask(lambda state: str(state.providers[id_].status))
        return pb.DeclareResponse(provider_id=id_, status=status, event=outcome.event, is_repeat=outcome.is_repeat)


_DECLARATIONS: Final[dict[str, Callable[[acts.Declaration, ProviderId], law.Command]]] = {
    "drain": lambda told, id_: Drain(id_, True, id_.hex(), told.reason),
    "undrain": lambda told, id_: Drain(id_, False, id_.hex(), told.reason),
    "retire": lambda told, id_: MoveProvider(id_, ProviderAct.RETIRE, id_.hex(), told.reason),
    "unstake": lambda told, id_: Unstake(id_, Amount(told.amount), told.request, id_.hex()),
    "rotate": lambda told, id_: RotateSigner(id_, told.new_public, id_.hex()),
}


def _command(told: acts.Registration) -> Register:
    words = (told.public, told.name, AccountId(told.account), canonical(told.capabilities), told.region)
    shown = told.attestation
    if shown is None:
        return Register(*words, told.price, told.slots, told.attested_until_ms)
    until_ms = min(told.attested_until_ms, shown.not_after_ms)
    return Register(*words, told.price, told.slots, until_ms, shown.verifier, shown.versions)


def provider_service(at: AgentDesk) -> Service:
    """Ready to be plugged into the door."""
    return Service(NAME, ProviderService(at), provider_pb2_grpc.add_ProviderServiceServicer_to_server)
