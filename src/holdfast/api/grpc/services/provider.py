"""`holdfast.provider.v1`: agents register, receive work and submit it; every message of theirs is signed (PRV-003)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar

import msgspec

from holdfast.api.attestation import why_not_attested
from holdfast.api.completion import build_completion
from holdfast.api.grpc.call_wrapping import Context
from holdfast.api.grpc.service import GrpcService
from holdfast.api.grpc.services.agent_context import AgentContext
from holdfast.api.grpc.services.input_download import get_input
from holdfast.api.grpc.services.nonces import Nonces
from holdfast.api.grpc.services.output_upload import put_output
from holdfast.api.grpc.services.work import WorkStreams
from holdfast.core.base.canonical import canonical
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command
from holdfast.core.base.values import AccountId, Amount, ProviderId
from holdfast.core.proof.envelope import Envelope
from holdfast.core.proof.messages import CompletionIgnored
from holdfast.core.provider.invitations import invitation_digest
from holdfast.core.provider.messages import ChangeStatus, Drain, Register, RotateSigner, Unstake
from holdfast.core.provider.model import ProviderTransition, split_price
from holdfast.engine.queries.providers import GetProvider, GetProviderStatus, GetProviderView
from holdfast.wire import signed_messages
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2_grpc

NAME: Final = "holdfast.provider.v1.ProviderService"
ChallengeAnswer = signed_messages.Registration | signed_messages.Declaration
T = TypeVar("T", signed_messages.Registration, signed_messages.Declaration)
BODY_BYTES_MAX: Final = 64 << 10
_STALE_NONCE: Final = Refused(
    "PRV-003", "the nonce is unknown, used or expired", "request a new challenge", "Unauthorized"
)


class ProviderService(provider_pb2_grpc.ProviderServiceServicer):
    """Each call checks a signed message and submits one command; the work stream is in `work`."""

    def __init__(self, agents: AgentContext) -> None:
        self._agents, self._nonces, self.work = agents, Nonces(), WorkStreams(agents)

    async def GetChallenge(self, request: pb.GetChallengeRequest, _: Context) -> pb.GetChallengeResponse:  # noqa: N802 - the name of the method
        self._agents.check_owner()
        now_ms = self._agents.engine.now_ms()
        chain_id = self._agents.engine.policy.chain_id
        nonce = self._nonces.make(now_ms, request.public)
        return pb.GetChallengeResponse(nonce=nonce, chain_id=chain_id, time_ms=now_ms)

    async def Register(self, request: pb.RegisterRequest, _: Context) -> pb.RegisterResponse | Refused:  # noqa: N802
        registration = self._read(request.body, signed_messages.read_registration)
        if isinstance(registration, Refused):
            return registration
        signed = signed_messages.to_sign_registration(request.body)
        if refusal := await self._why_not_answered(registration, signed, request.signature):
            return refusal
        if refusal := await self._why_not_attested(registration):
            return refusal
        provider = await self._agents.engine.query_durable(GetProvider(self._agents.provider_of(registration.public)))
        if refusal := self.work.instances.why_not(provider, registration.instance):
            return refusal
        outcome = await self._agents.node.submit(_register_command(registration))
        if isinstance(outcome, Refused):
            return outcome
        return await self._registration_reply(self._agents.provider_of(registration.public))

    def _read(self, body: bytes, read: Callable[[bytes], T | Refused]) -> T | Refused:
        """A signed body that answers a challenge; invalid ones are refused before the signature is computed."""
        self._agents.check_owner()
        if len(body) > BODY_BYTES_MAX:
            return Refused("PRV-003", f"a body of {len(body)} bytes", f"at most {BODY_BYTES_MAX}", "TooLarge")
        answer = read(body)
        if isinstance(answer, Refused):
            return answer
        is_good = self._nonces.is_good(answer.nonce, self._agents.engine.now_ms(), answer.public)
        return answer if is_good else _STALE_NONCE

    async def _why_not_answered(self, answer: ChallengeAnswer, signed: bytes, signature: bytes) -> Refused | None:
        """PRV-003: signed by the key that the nonce was made for, and for the first time."""
        if refusal := await self._agents.why_not_signed(answer.public, signed, signature):
            return refusal
        is_first = self._nonces.use(answer.nonce, self._agents.engine.now_ms(), answer.public)
        return None if is_first else _STALE_NONCE  # the same message may have been checked in the meantime

    async def _why_not_attested(self, registration: signed_messages.Registration) -> Refused | None:
        """PRV-001: an attestation is checked. Without one, the provider vouches for itself by its signature."""
        attestation, at = registration.attestation, self._agents
        if attestation is None:
            return None
        times = (at.engine.now_ms(), at.engine.policy.provider.attestation_skew_ms)
        claims = canonical(registration.capabilities)
        if refusal := why_not_attested(attestation, registration.public, claims, times, at.attestors):
            return refusal
        return await at.why_not_accepted_by_attestor(attestation)

    async def _registration_reply(self, id_: ProviderId) -> pb.RegisterResponse:
        engine = self._agents.engine
        view = await engine.query_durable(GetProviderView(id_, engine.now_ms()))
        assert view is not None
        stake, status = view.provider.stake, view.provider.status
        return pb.RegisterResponse(provider_id=id_, status=status, stake=stake, stake_min=view.stake_min)

    async def Work(self, _: AsyncIterator[pb.WorkRequest], context: Context) -> Refused | None:  # noqa: N802
        return await self.work.serve(context)

    async def PutOutput(  # noqa: N802
        self, requests: AsyncIterator[pb.PutOutputRequest], _: Context
    ) -> pb.PutOutputResponse | Refused:
        return await put_output(self._agents, requests)

    async def GetInput(  # noqa: N802
        self, request: pb.GetInputRequest, _: Context
    ) -> AsyncIterator[pb.GetInputResponse | Refused]:
        async for message in get_input(self._agents, request):
            yield message

    async def Complete(self, request: pb.CompleteRequest, _: Context) -> pb.CompleteResponse | Refused:  # noqa: N802
        self._agents.check_owner()
        proof = Envelope(request.type, request.method, request.body, request.signature)
        if refusal := await self._agents.why_not_signed_proof(request.public, proof):
            return refusal
        agents = self._agents
        command = await build_completion(agents.blobs, agents.engine, agents.provider_of(request.public), proof)
        if isinstance(command, Refused):
            return command
        outcome = await self._agents.engine.submit(command)
        if isinstance(outcome, Refused):
            return outcome
        if isinstance(outcome.fact, CompletionIgnored):
            return Refused("RCV-002", "another result was submitted for this lease before", "the first result counts")
        return pb.CompleteResponse(event=outcome.event, is_repeat=outcome.is_repeat)

    async def Declare(self, request: pb.DeclareRequest, _: Context) -> pb.DeclareResponse | Refused:  # noqa: N802
        declaration = self._read(request.body, signed_messages.read_declaration)
        if isinstance(declaration, Refused):
            return declaration
        make = _DECLARATIONS.get(declaration.act)
        if make is None:
            message = f"unknown act {declaration.act[:40]!r}"
            return Refused("PRV-003", message, f"use one of {' '.join(_DECLARATIONS)}", "InvalidParams")
        signed, at = signed_messages.to_sign_declaration(request.body), self._agents
        is_rotated = declaration.act == "rotate"
        if is_rotated and not await at.in_pool(at.verify, declaration.new_public, signed, request.new_signature):
            return Refused("PRV-003", "the new key has not signed the rotation", "sign with both keys", "Unauthorized")
        if refusal := await self._why_not_answered(declaration, signed, request.signature):
            return refusal
        id_ = at.provider_of(declaration.public)
        outcome = await at.node.submit(make(declaration, id_))
        if isinstance(outcome, Refused):
            return outcome
        status = await at.engine.query_durable(GetProviderStatus(id_))
        return pb.DeclareResponse(provider_id=id_, status=status, event=outcome.event, is_repeat=outcome.is_repeat)


_DECLARATIONS: Final[dict[str, Callable[[signed_messages.Declaration, ProviderId], Command]]] = {
    "drain": lambda declared, id_: Drain(id_, True, id_.hex(), declared.reason),
    "undrain": lambda declared, id_: Drain(id_, False, id_.hex(), declared.reason),
    "retire": lambda declared, id_: ChangeStatus(id_, ProviderTransition.RETIRE, id_.hex(), declared.reason),
    "unstake": lambda declared, id_: Unstake(id_, Amount(declared.amount), declared.request, id_.hex()),
    "rotate": lambda declared, id_: RotateSigner(id_, declared.new_public, id_.hex()),
}


def _invitation(registration: signed_messages.Registration) -> bytes:
    """SEC-002: the node decides on the hash of a token, which is all that it has stored."""
    if not registration.invitation:
        return b""
    return invitation_digest(registration.invitation, registration.invitation_expires_ms)


def _register_command(registration: signed_messages.Registration) -> Register:
    """An attestation names its verifier and versions, and ends no later than it says itself."""
    price, prices = split_price(registration.price)
    command = Register(
        public=registration.public,
        name=registration.name,
        account=AccountId(registration.account),
        capabilities=canonical(registration.capabilities),
        region=registration.region,
        price=price,
        slots=registration.slots,
        attested_until_ms=registration.attested_until_ms,
        prices=prices,
        invitation=_invitation(registration),
        invitation_expires_ms=registration.invitation_expires_ms,
    )
    attestation = registration.attestation
    if attestation is None:
        return command
    return msgspec.structs.replace(
        command,
        attested_until_ms=min(registration.attested_until_ms, attestation.not_after_ms),
        attestor=attestation.verifier,
        versions=attestation.versions,
    )


def provider_service(agents: AgentContext) -> GrpcService:
    """The service, for `GrpcServer`."""
    return GrpcService(NAME, ProviderService(agents), provider_pb2_grpc.add_ProviderServiceServicer_to_server)
