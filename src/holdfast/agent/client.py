"""What an agent asks of its node one call at a time: to be known, and to take the bytes of an output."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from platform import python_version
from typing import Any, Final

import msgspec

from holdfast import __version__
from holdfast.agent.dial import Dial, answered
from holdfast.agent.settings import AgentSettings, Signer
from holdfast.core.canon import canonical
from holdfast.core.provider.decide import support_of
from holdfast.core.provider.record import provider_id
from holdfast.ports import Clock
from holdfast.wire import acts
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb

PART_BYTES: Final = 256 << 10
VERSIONS: Final = f"holdfast {__version__}, python {python_version()}"


class Standing(msgspec.Struct, frozen=True):
    """How the node sees this provider."""

    provider_id: bytes
    status: str
    stake: int
    stake_min: int

    @property
    def missing(self) -> int:
        """What must still be put at stake."""
        return max(0, self.stake_min - self.stake)


class NodeClient:
    """Calls of one provider. A node that does not answer raises gRPC's error; who calls tries again."""

    def __init__(
        self,
        dial: Dial,
        settings: AgentSettings,
        capabilities: dict[str, dict[str, Any]],
        signer: Signer,
        clock: Clock,
        id_: bytes | None = None,
    ) -> None:
        self._dial, self._settings, self._capabilities = dial, settings, capabilities
        self._signer, self._clock = signer, clock
        self.id = provider_id(signer.public) if id_ is None else id_
        self.offset_ms = 0
        """The node's clock minus ours, for display and for how long what we say of ourselves holds."""
        self._attested_until_ms = 0
        self._attestation: acts.Attestation | None = None
        self._support = support_of(canonical(capabilities))

    def node_time(self, time_ms: int) -> None:
        """The node has told its time."""
        self.offset_ms = time_ms - self._clock.wall_ms()

    async def register(self) -> Standing:
        """Say who we are and what we do (PRV-001); saying the same again changes nothing and tells how we stand."""
        settings, call_s = self._settings, self._settings.call_ms / 1000
        asked = pb.GetChallengeRequest(public=self._signer.public)
        challenge = await answered(self._dial.provider.GetChallenge(asked, timeout=call_s))
        self.node_time(challenge.time_ms)
        if self._attested_until_ms - challenge.time_ms < settings.attested_ms // 2:
            self._attested_until_ms = challenge.time_ms + settings.attested_ms
            self._attestation = self._attest(challenge.time_ms)
        told = acts.Registration(
            nonce=challenge.nonce,
            public=self._signer.public,
            name=settings.name,
            account=settings.account,
            capabilities=self._capabilities,
            region=settings.region,
            price=settings.price,
            slots=settings.slots,
            attested_until_ms=self._attested_until_ms,
            attestation=self._attestation,
        )
        body = acts.pack(told)
        request = pb.RegisterRequest(body=body, signature=self._signer.sign(acts.to_sign_registration(body)))
        answer = await answered(self._dial.provider.Register(request, timeout=call_s))
        return Standing(answer.provider_id, answer.status, answer.stake, answer.stake_min)

    def _attest(self, now_ms: int) -> acts.Attestation:
        """PRV-001: this key vouches for itself, with what it runs and what runs it."""
        told = acts.Attestation(
            verifier="self-signed",
            public=self._signer.public,
            not_before_ms=now_ms,
            not_after_ms=self._attested_until_ms,
            claims=self._support,
            versions=VERSIONS,
        )
        return msgspec.structs.replace(told, evidence=self._signer.sign(acts.to_sign_attestation(told)))

    def beat(self, slots: int, load: int) -> acts.Act:
        """PRV-002: we are there, take so many, work on so many, and are still what we registered as."""
        return acts.Act("beat", slots=slots, load=load, versions=VERSIONS, support=self._support)

    @property
    def is_attested(self) -> bool:
        """What was last said of ourselves still holds for a good while."""
        left_ms = self._attested_until_ms - self._clock.wall_ms() - self.offset_ms
        return left_ms >= self._settings.attested_ms // 2

    async def put_output(self, lease_id: bytes, digest: bytes, output: bytes) -> None:
        """Hand over the bytes; when this returns the node holds them durably (EVD-006)."""
        signature = self._signer.sign(acts.to_sign_output(lease_id, digest, len(output)))
        header = pb.OutputHeader(
            lease_id=lease_id, public=self._signer.public, digest=digest, size=len(output), signature=signature
        )

        async def parts() -> AsyncIterator[pb.PutOutputRequest]:
            yield pb.PutOutputRequest(header=header)
            for at in range(0, len(output), PART_BYTES):
                yield pb.PutOutputRequest(part=output[at : at + PART_BYTES])
                await asyncio.sleep(0)
            yield pb.PutOutputRequest(end=pb.OutputEnd())

        call_s = self._settings.call_ms / 1000 * (1 + len(output) // PART_BYTES)
        await answered(self._dial.provider.PutOutput(parts(), timeout=call_s))
