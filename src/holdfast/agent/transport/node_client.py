"""The calls of an agent to its node: register, and upload an output."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from platform import python_version
from typing import Any, Final

import msgspec

from holdfast.__about__ import __version__
from holdfast.agent.settings import AgentSettings
from holdfast.core.base.canonical import canonical
from holdfast.core.provider.decide import capabilities_digest
from holdfast.core.provider.model import provider_id
from holdfast.ports import Clock, Signer
from holdfast.shipping.node_connection import NodeConnection, StreamEnded, await_call, read_message
from holdfast.wire import signed_messages
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb

PART_BYTES: Final = 256 << 10
VERSIONS: Final = f"holdfast {__version__}, python {python_version()}"


class RegistrationStatus(msgspec.Struct, frozen=True):
    """A provider's status at the node."""

    provider_id: bytes
    status: str
    stake: int
    stake_min: int

    @property
    def stake_missing(self) -> int:
        """The stake that is still missing."""
        return max(0, self.stake_min - self.stake)


class NodeClient:
    """The calls of one provider. They raise gRPC's error where the node does not answer; the caller retries."""

    def __init__(
        self,
        *,
        connection: NodeConnection,
        settings: AgentSettings,
        capabilities: dict[str, dict[str, Any]],
        signer: Signer,
        clock: Clock,
        id_: bytes | None = None,
        instance: bytes = b"",
    ) -> None:
        self._connection, self._settings, self._capabilities = connection, settings, capabilities
        self._signer, self._clock, self._instance = signer, clock, instance
        self.id = provider_id(signer.public) if id_ is None else id_
        self.offset_ms = 0
        """The node's clock minus ours, for display and for the attestation."""
        self._attested_until_ms = 0
        self._attestation: signed_messages.Attestation | None = None
        self._support = capabilities_digest(canonical(capabilities))

    def set_node_time(self, time_ms: int) -> None:
        """The node has sent its time."""
        self.offset_ms = time_ms - self._clock.wall_ms()

    async def register(self) -> RegistrationStatus:
        """Register (PRV-001). A repeat changes nothing and returns the status."""
        settings, call_s = self._settings, self._settings.call_ms / 1000
        request_nonce = pb.GetChallengeRequest(public=self._signer.public)
        challenge = await await_call(self._connection.provider.GetChallenge(request_nonce, timeout=call_s))
        self.set_node_time(challenge.time_ms)
        if self._attested_until_ms - challenge.time_ms < settings.attested_ms // 2:
            self._attested_until_ms = challenge.time_ms + settings.attested_ms
            self._attestation = self._make_attestation(challenge.time_ms)
        invitation, expires_ms = signed_messages.read_invitation(settings.invitation)
        registration = signed_messages.Registration(
            nonce=challenge.nonce,
            public=self._signer.public,
            name=settings.name,
            account=settings.account,
            capabilities=self._capabilities,
            region=settings.region,
            price=settings.prices | {"*": settings.price} if settings.prices else settings.price,
            slots=settings.slots,
            attested_until_ms=self._attested_until_ms,
            attestation=self._attestation,
            invitation=invitation,
            invitation_expires_ms=expires_ms,
            instance=self._instance,
        )
        body = signed_messages.pack_message(registration)
        request = pb.RegisterRequest(body=body, signature=self._signer.sign(signed_messages.to_sign_registration(body)))
        answer = await await_call(self._connection.provider.Register(request, timeout=call_s))
        return RegistrationStatus(answer.provider_id, answer.status, answer.stake, answer.stake_min)

    def _make_attestation(self, now_ms: int) -> signed_messages.Attestation:
        """PRV-001: the key attests itself, with its capabilities and versions."""
        attestation = signed_messages.Attestation(
            verifier="self-signed",
            public=self._signer.public,
            not_before_ms=now_ms,
            not_after_ms=self._attested_until_ms,
            claims=self._support,
            versions=VERSIONS,
        )
        signature = self._signer.sign(signed_messages.to_sign_attestation(attestation))
        return msgspec.structs.replace(attestation, evidence=signature)

    def make_heartbeat(self, slots: int, load: int) -> signed_messages.AgentAct:
        """PRV-002: alive, with this many slots and running leases, and with unchanged capabilities."""
        return signed_messages.AgentAct("beat", slots=slots, load=load, versions=VERSIONS, support=self._support)

    @property
    def is_attested(self) -> bool:
        """The attestation holds for at least half of its time."""
        left_ms = self._attested_until_ms - self._clock.wall_ms() - self.offset_ms
        return left_ms >= self._settings.attested_ms // 2

    async def get_input(self, lease_id: bytes, offset: int) -> AsyncIterator[bytes]:
        """The bytes of a job's input from an offset on, part by part (JOB-003)."""
        signature = self._signer.sign(signed_messages.to_sign_get_input(lease_id, offset))
        request = pb.GetInputRequest(lease_id=lease_id, public=self._signer.public, offset=offset, signature=signature)
        call = self._connection.provider.GetInput(request)
        try:
            while True:
                async with asyncio.timeout(self._settings.call_ms / 1000):
                    message = await read_message(call)
                yield message.part
        except StreamEnded:
            return
        finally:
            call.cancel()

    async def put_output(self, lease_id: bytes, digest: bytes, output: bytes) -> None:
        """Upload the bytes; when this returns the node has them durably (EVD-006)."""
        signature = self._signer.sign(signed_messages.to_sign_output(lease_id, digest, len(output)))
        header = pb.OutputHeader(
            lease_id=lease_id, public=self._signer.public, digest=digest, size=len(output), signature=signature
        )

        call_s = self._settings.call_ms / 1000 * (1 + len(output) // PART_BYTES)
        await await_call(self._connection.provider.PutOutput(_output_parts(header, output), timeout=call_s))


async def _output_parts(header: pb.OutputHeader, output: bytes) -> AsyncIterator[pb.PutOutputRequest]:
    yield pb.PutOutputRequest(header=header)
    for offset in range(0, len(output), PART_BYTES):
        yield pb.PutOutputRequest(part=output[offset : offset + PART_BYTES])
        await asyncio.sleep(0)
    yield pb.PutOutputRequest(end=pb.OutputEnd())
