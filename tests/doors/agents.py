"""An agent driven by hand, and a house for it: a real gRPC door, a real engine, a warm folder, real Ed25519 keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from tests.core.ways import YEAR_MS
from tests.doors.grpc_house import Channel, No, dialled, no_of, opened
from tests.simulated.world import World, ended

from holdfast.adapters.clock import MachineClock
from holdfast.adapters.keys.signing import SigningKey, verify
from holdfast.adapters.warm import WarmFolder
from holdfast.core import law
from holdfast.core.escrow.acts import Mint
from holdfast.core.event import Event
from holdfast.core.lease.record import Lease
from holdfast.core.match.decide import Match
from holdfast.core.proof.acts import Judge
from holdfast.core.proof.envelope import body_of, signed_bytes
from holdfast.core.provider.acts import Stake
from holdfast.core.provider.record import provider_id
from holdfast.core.queue.acts import Enqueue, JobAdmitted
from holdfast.core.queue.decide import prepare
from holdfast.core.result import result_digest
from holdfast.core.values import AccountId, Amount, HoldId, LeaseId, TaskId, Tier
from holdfast.doors.desk import Desk
from holdfast.doors.grpc.agentdesk import AgentDesk
from holdfast.doors.grpc.evidence import EvidenceService, evidence_service
from holdfast.doors.grpc.legacy import legacy_service
from holdfast.doors.grpc.limiting import Pace
from holdfast.doors.grpc.provider import ProviderService, provider_service
from holdfast.doors.grpc.settings import GrpcSettings, LegacyEvidence
from holdfast.doors.stored import stored_lines
from holdfast.doors.witness import Witness
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted
from holdfast.spool.record import Encoder
from holdfast.wire import acts
from holdfast.wire.acts import Act
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2 as epb
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2_grpc
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2_grpc

PATIENCE_S = 30.0
EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
ALICE = AccountId("alice")


class House:
    """A node's side, as far as agents see it; the duties are the test's."""

    def __init__(self, engine: Engine, world: World, folder: Path, legacy: LegacyEvidence) -> None:
        self.engine, self.world, self.folder = engine, world, folder
        self.desk = Desk(engine, engine.submit)
        self.desk.blobs = self.blobs = WarmFolder(folder / "warm")
        self.at = AgentDesk(self.desk, engine, self.blobs, verify, Pace(MachineClock(), GrpcSettings()))
        self.desk.witness = self.witness = Witness()
        self.services = [
            provider_service(self.at),
            evidence_service(self.at, self.witness),
            legacy_service(self.at, self.witness, legacy),
        ]
        self.door: Any = None
        self.channel: Channel = None
        self._ids = 0

    @property
    def provider(self) -> ProviderService:
        assert isinstance(self.services[0].servicer, ProviderService)
        return self.services[0].servicer

    @property
    def evidence(self) -> EvidenceService:
        assert isinstance(self.services[1].servicer, EvidenceService)
        return self.services[1].servicer

    async def do(self, command: law.Command) -> Accepted:
        outcome = await self.engine.submit(command)
        assert isinstance(outcome, Accepted), outcome
        return outcome

    def new_id(self) -> bytes:
        self._ids += 1
        return (self.engine.state.last_event * 1_000 + self._ids).to_bytes(32, "big")

    async def enqueue(self, prompt: str = "hi") -> TaskId:
        await self.do(Mint(HoldId(self.new_id()), ALICE, Amount(1_000)))
        payload = {"kind": "AI", "spec": {"model": "echo", "prompt": prompt}, "units": 2}
        command = prepare(self.world.policy, ALICE, Tier.FREE, payload, 100, self.engine.state.last_event)
        assert isinstance(command, Enqueue)
        admitted = (await self.do(command)).fact
        assert isinstance(admitted, JobAdmitted)
        return admitted.id

    async def match(self) -> None:
        await self.do(Match())

    async def judge(self, lease_id: bytes, *, is_good: bool = True) -> None:
        await self.do(Judge(LeaseId(lease_id), is_good, "as the test says"))

    def lease(self, lease_id: bytes) -> Lease | None:
        return self.engine.state.leases.by_id.get(LeaseId(lease_id))

    def batches(self) -> list[list[Event]]:
        """The whole journal."""
        return [law.unpack(batch) for batch in self.world.disk.batches]

    def pass_time(self, ms: int) -> None:
        self.world.clock.monotonic += ms

    def files(self) -> list[Path]:
        """All that lies in the warm folder, on its way or held."""
        return [path for path in (self.folder / "warm").rglob("*") if path.is_file()]


@asynccontextmanager
async def housed(
    folder: Path, world: World | None = None, legacy: LegacyEvidence = LegacyEvidence.OPEN
) -> AsyncIterator[House]:
    """A node that is up; with the world of an earlier one it is its next start."""
    world = world or World()
    engine = await world.started()
    house = House(engine, world, folder, legacy)
    async with opened(services=house.services) as door, dialled(door) as channel:
        house.at.leave_with(door.closing)
        house.door, house.channel = door, channel
        yield house
    await ended(engine)


class Hand:
    """One provider with its key; everything it says is put together here, right or as wrong as a test wants it."""

    def __init__(self, house: House, name: str = "oak", key: SigningKey | None = None) -> None:
        self.house, self.name, self.key = house, name, key or SigningKey.generate()
        self.id = provider_id(self.key.public)
        self.stub: Any = provider_pb2_grpc.ProviderServiceStub(house.channel)  # type: ignore[no-untyped-call]
        self.evidence_stub: Any = evidence_pb2_grpc.EvidenceServiceStub(house.channel)  # type: ignore[no-untyped-call]

    # -------------------------------------------------------------------------------------------- registering

    async def registration(self, **told: Any) -> pb.RegisterRequest:
        challenge = await self.stub.GetChallenge(pb.GetChallengeRequest(), timeout=PATIENCE_S)
        fields: dict[str, Any] = {
            "nonce": challenge.nonce,
            "public": self.key.public,
            "name": self.name,
            "account": self.name,
            "capabilities": {"AI": {"models": ["echo"]}},
            "region": "eu",
            "price": 3,
            "slots": 4,
            "attested_until_ms": challenge.time_ms + YEAR_MS,
        }
        body = acts.pack(acts.Registration(**(fields | told)))
        return pb.RegisterRequest(body=body, signature=self.key.sign(acts.to_sign_registration(body)))

    async def register(self, **told: Any) -> pb.RegisterResponse:
        return await self.stub.Register(await self.registration(**told), timeout=PATIENCE_S)  # type: ignore[no-any-return]

    async def staked(self) -> None:
        """Registered, with enough at stake; only its heartbeat is missing."""
        await self.register()
        house, account = self.house, AccountId(self.name)
        await house.do(Mint(HoldId(house.new_id()), account, Amount(10_000)))
        await house.do(Stake(self.id, Amount(10_000), house.new_id()))

    async def at_work(self) -> HandStream:
        """Active, on a stream, welcomed."""
        await self.staked()
        stream = await self.open()
        await stream.act(Act("beat", slots=4))
        return stream

    # -------------------------------------------------------------------------------------------- working

    async def open(self) -> HandStream:
        stream = HandStream(self, self.stub.Work())
        await stream.open()
        return stream

    async def leased(self, stream: HandStream, prompt: str = "hi") -> pb.Offer:
        """A job that was offered to this one."""
        await self.house.enqueue(prompt)
        await self.house.match()
        return (await stream.read("offer")).offer  # type: ignore[no-any-return]

    def header(self, offer: pb.Offer, output: bytes, **told: Any) -> pb.OutputHeader:
        fields: dict[str, Any] = {"lease_id": offer.lease_id, "digest": result_digest(output), "size": len(output)}
        fields |= told
        signature = self.key.sign(acts.to_sign_output(fields["lease_id"], fields["digest"], fields["size"]))
        return pb.OutputHeader(**({"public": self.key.public, "signature": signature} | fields))

    async def put(self, offer: pb.Offer, output: bytes, **told: Any) -> pb.PutOutputResponse:
        requests = [pb.PutOutputRequest(header=self.header(offer, output, **told))]
        requests += [pb.PutOutputRequest(part=output[at : at + 65_536]) for at in range(0, len(output), 65_536)]
        return await self.put_all([*requests, pb.PutOutputRequest(end=pb.OutputEnd())])

    async def announce(self, offer: pb.Offer, output: bytes, **told: Any) -> pb.PutOutputResponse:
        """The header alone, where it has its answer: who still writes then may report its own failure to write."""
        return await self.put_all([pb.PutOutputRequest(header=self.header(offer, output, **told))])

    async def put_all(self, requests: Iterable[pb.PutOutputRequest]) -> pb.PutOutputResponse:
        return await self.stub.PutOutput(iter(list(requests)), timeout=PATIENCE_S)  # type: ignore[no-any-return]

    def completion(self, offer: pb.Offer, output: bytes, **told: Any) -> pb.CompleteRequest:
        body = body_of(offer.task_id, offer.lease_id, self.id, result_digest(output), len(output), {"ms": 1})
        fields: dict[str, Any] = {"type": 1, "method": "attested", "body": body} | told
        signature = self.key.sign(signed_bytes(fields["type"], fields["method"], fields["body"]))
        return pb.CompleteRequest(**({"public": self.key.public, "signature": signature} | fields))

    async def complete(self, request: pb.CompleteRequest) -> pb.CompleteResponse:
        return await self.stub.Complete(request, timeout=PATIENCE_S)  # type: ignore[no-any-return]

    # -------------------------------------------------------------------------------------------- telling

    async def tell(self, session: str = "s1", **told: Any) -> HandEvidence:
        stream = HandEvidence(self, self.evidence_stub.Stream(), session)
        await stream.open(**told)
        return stream

    def completed(self, offer: pb.Offer, output: bytes, **told: Any) -> tuple[str, dict[str, Any]]:
        """The record that hands a result in."""
        said = self.completion(offer, output)
        payload = {"lease_id": offer.lease_id.hex(), "type": said.type, "method": said.method}
        payload |= {"body": said.body.hex(), "signature": said.signature.hex()}
        return "LEASE_COMPLETED", payload | told

    def failed(self, offer: pb.Offer, reason: str = "broken") -> tuple[str, dict[str, Any]]:
        signature = self.key.sign(acts.to_sign_failure(offer.lease_id, reason))
        return "LEASE_FAILED", {"lease_id": offer.lease_id.hex(), "reason": reason, "signature": signature.hex()}


class HandStream:
    """One work stream, message by message."""

    def __init__(self, hand: Hand, call: Any) -> None:
        self.hand, self.call, self.nonce, self.count = hand, call, b"", 0
        self.welcome: Any = None
        self._early: list[Any] = []
        """What came while an answer was awaited: the node offers work whenever it has some."""

    async def open(self, **told: Any) -> None:
        self.nonce = (await self.read("challenge")).challenge.nonce
        signature = self.hand.key.sign(acts.to_sign_open(self.nonce, self.hand.id))
        await self.call.write(
            pb.WorkRequest(open=pb.Open(**({"public": self.hand.key.public, "signature": signature} | told)))
        )
        self.welcome = (await self.read("welcome")).welcome

    async def read(self, kind: str) -> Any:
        """The next message, which must be of this kind."""
        message = await self.any()
        assert message.WhichOneof("message") == kind, message
        return message

    async def any(self) -> Any:
        return self._early.pop(0) if self._early else await self._next()

    async def _next(self) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            message = await self.call.read()
        assert message is not EOF, "the stream has ended"
        return message

    def signed(self, *said: Act, **told: Any) -> pb.WorkRequest:
        self.count += 1
        fields: dict[str, Any] = {"nonce": self.nonce, "count": self.count, "acts": list(said)}
        body = acts.pack(acts.Acts(**(fields | told)))
        signature = self.hand.key.sign(acts.to_sign_acts(body))
        return pb.WorkRequest(acts=pb.SignedActs(body=body, signature=signature))

    async def act(self, *said: Act, **told: Any) -> list[pb.ActOutcome]:
        await self.call.write(self.signed(*said, **told))
        while (message := await self._next()).WhichOneof("message") == "offer":
            self._early.append(message)
        assert message.WhichOneof("message") == "acts_done", message
        done = message.acts_done
        assert done.count == self.count
        return list(done.outcomes)

    async def refused(self, request: pb.WorkRequest | None = None) -> No:
        """How the stream ends, after this request or by itself."""
        if request is not None:
            await self.call.write(request)
        return await refusal(self.call.read())


class HandEvidence:
    """One evidence stream, message by message."""

    def __init__(self, hand: Hand, call: Any, session: str) -> None:
        self.hand, self.call, self.session = hand, call, session
        self.channel = hand.id.hex()
        self.ack: Any = None

    async def open(self, **told: Any) -> None:
        nonce = (await self.read("challenge")).challenge.nonce
        names = {"channel_id": self.channel, "session_id": self.session}
        signature = self.hand.key.sign(acts.to_sign_hello(nonce, names["channel_id"], names["session_id"]))
        fields: dict[str, Any] = names | {"public": self.hand.key.public, "signature": signature} | told
        if "channel_id" in told:
            fields["signature"] = self.hand.key.sign(acts.to_sign_hello(nonce, told["channel_id"], self.session))
        await self.call.write(epb.StreamRequest(hello=epb.Hello(**fields)))
        self.ack = (await self.read("ack")).ack

    async def read(self, kind: str) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            message = await self.call.read()
        assert message is not EOF, "the stream has ended"
        assert message.WhichOneof("message") == kind, message
        return message

    async def send(self, first: int, lines: list[bytes]) -> None:
        await self.call.write(epb.StreamRequest(records=epb.Records(first_sequence=first, lines=lines)))

    async def acked(self, first: int, lines: list[bytes]) -> int:
        """Send, and the mark that comes back."""
        await self.send(first, lines)
        return int((await self.read("ack")).ack.acked_sequence)

    async def refused(self, first: int, lines: list[bytes]) -> epb.Refusal:
        await self.send(first, lines)
        return (await self.read("refusal")).refusal  # type: ignore[no-any-return]

    async def kept(self) -> list[bytes]:
        """What the node holds of this session."""
        return [line async for line in stored_lines(self.hand.house.engine, self.channel, self.session)]

    def lines(self, first: int, *records: tuple[str, dict[str, Any]]) -> list[bytes]:
        """Lines as the spool writes them, without their ends."""
        encoder = Encoder(self.channel, self.session, bytes(range(16)))
        return [
            encoder.line(sequence, 1_000_000, f'"{kind}"', msgspec.json.encode(payload)).rstrip(b"\n")
            for sequence, (kind, payload) in enumerate(records, start=first)
        ]

    def some(self, first: int, last: int) -> list[bytes]:
        """Records that ask for nothing."""
        return self.lines(first, *(("PROGRESS", {"percent": number}) for number in range(first, last + 1)))


async def refusal(call: Any) -> No:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(PATIENCE_S):
            await call
    return no_of(caught.value)


async def until(is_so: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.005)
