"""An agent driven step by step, and its node: a real gRPC server, engine, warm store and Ed25519 keys."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from tests.api.grpc.grpc_server import CallFailure, Channel, call_failure, connected_channel, grpc_server
from tests.core.core_driver import YEAR_MS
from tests.simulation.world import World, stop_engine

from holdfast.adapters import warm_sent
from holdfast.adapters.clock import MachineClock
from holdfast.adapters.keys.signing import SigningKey, verify
from holdfast.adapters.warm_store import WarmStore
from holdfast.api.evidence.metrics import EvidenceMetrics
from holdfast.api.evidence.reader import read_session_lines
from holdfast.api.grpc.rate_interceptor import ActRateLimiter
from holdfast.api.grpc.services.agent_context import AgentContext
from holdfast.api.grpc.services.evidence import EvidenceService, evidence_service
from holdfast.api.grpc.services.provider import ProviderService, provider_service
from holdfast.api.grpc.services.retrovue import retrovue_service
from holdfast.api.grpc.settings import GrpcSettings, LegacyEvidence
from holdfast.api.node_access import NodeAccess
from holdfast.core import journal_codec
from holdfast.core.base.event import Command, Event
from holdfast.core.base.values import AccountId, Amount, LeaseId, ReservationId, TaskId, Tier
from holdfast.core.escrow.messages import Mint
from holdfast.core.lease.model import Lease
from holdfast.core.match.messages import Match
from holdfast.core.proof.envelope import body_of, signed_bytes
from holdfast.core.proof.messages import RecordVerdict
from holdfast.core.provider.messages import Stake
from holdfast.core.provider.model import provider_id
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue, JobAdmitted
from holdfast.core.result import result_digest
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted
from holdfast.spool.files.record import Encoder
from holdfast.wire import signed_messages
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2 as epb
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2_grpc
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2_grpc
from holdfast.wire.signed_messages import AgentAct

PATIENCE_S = 30.0
EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
ALICE = AccountId("alice")


class AgentNode:
    """A node's side, as far as agents see it; the test does what workers do."""

    def __init__(self, engine: Engine, world: World, folder: Path, legacy: LegacyEvidence) -> None:
        self.engine, self.world, self.folder = engine, world, folder
        self.access = NodeAccess(engine, engine.submit)
        self.access.blobs = self.blobs = WarmStore(folder / "warm")
        self.agent_context = AgentContext(
            self.access, engine, self.blobs, verify, ActRateLimiter(MachineClock(), GrpcSettings())
        )
        self.access.evidence_metrics = self.evidence_metrics = EvidenceMetrics()
        self.services = [
            provider_service(self.agent_context),
            evidence_service(self.agent_context, self.evidence_metrics),
            retrovue_service(self.agent_context, self.evidence_metrics, legacy),
        ]
        self.server: Any = None
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

    async def do(self, command: Command) -> Accepted:
        outcome = await self.engine.submit(command)
        assert isinstance(outcome, Accepted), outcome
        return outcome

    def new_id(self) -> bytes:
        self._ids += 1
        return (self.engine.undurable_state.last_event * 1_000 + self._ids).to_bytes(32, "big")

    async def enqueue(self, prompt: str = "hi", visibility: str = "public", **spec: Any) -> TaskId:
        """A job that others may read, so that it is offered whole, unless a test says otherwise."""
        await self.do(Mint(ReservationId(self.new_id()), ALICE, Amount(1_000)))
        told = {"model": "echo", "prompt": prompt} | spec
        payload = {"kind": "AI", "spec": told, "units": 2, "visibility": visibility}
        command = build_enqueue(
            self.world.policy, ALICE, Tier.FREE, payload, 100, self.engine.undurable_state.last_event
        )
        assert isinstance(command, Enqueue)
        admitted = (await self.do(command)).fact
        assert isinstance(admitted, JobAdmitted)
        return admitted.id

    async def match(self) -> None:
        await self.do(Match())

    async def judge(self, lease_id: bytes, *, is_good: bool = True) -> None:
        await self.do(RecordVerdict(LeaseId(lease_id), is_good, "as the test says"))

    def lease(self, lease_id: bytes) -> Lease | None:
        return self.engine.undurable_state.leases.by_id.get(LeaseId(lease_id))

    def batches(self) -> list[list[Event]]:
        """The whole journal."""
        return [journal_codec.unpack(batch) for batch in self.world.disk.batches]

    def pass_time(self, ms: int) -> None:
        self.world.clock.monotonic += ms

    def files(self) -> list[Path]:
        """All that lies in the warm folder, on its way or held."""
        paths = (self.folder / "warm").rglob("*")
        return [path for path in paths if path.is_file() and path.parent.parent.name != warm_sent.FOLDER]


@asynccontextmanager
async def agent_node(
    folder: Path, world: World | None = None, legacy: LegacyEvidence = LegacyEvidence.OPEN
) -> AsyncIterator[AgentNode]:
    """A node that is up; with the world of an earlier one it is its next start."""
    world = world or World()
    engine = await world.started()
    node = AgentNode(engine, world, folder, legacy)
    async with grpc_server(services=node.services) as server, connected_channel(server) as channel:
        node.agent_context.close_with(server.closing)
        node.server, node.channel = server, channel
        yield node
    await stop_engine(engine)


class AgentDriver:
    """One provider with its key; it builds its messages here, valid or as invalid as a test needs them."""

    def __init__(self, node: AgentNode, name: str = "oak", key: SigningKey | None = None) -> None:
        self.node, self.name, self.key = node, name, key or SigningKey.generate()
        self.id = provider_id(self.key.public)
        self.stub: Any = provider_pb2_grpc.ProviderServiceStub(node.channel)  # type: ignore[no-untyped-call]
        self.evidence_stub: Any = evidence_pb2_grpc.EvidenceServiceStub(node.channel)  # type: ignore[no-untyped-call]

    # -------------------------------------------------------------------------------------------- registering

    async def registration(self, **told: Any) -> pb.RegisterRequest:
        challenge = await self.stub.GetChallenge(pb.GetChallengeRequest(), timeout=PATIENCE_S)
        fields: dict[str, Any] = {
            "nonce": challenge.nonce,
            "public": self.key.public,
            "name": self.name,
            "account": self.name,
            "capabilities": {"AI": {"models": ["echo", "sleep"]}},
            "region": "eu",
            "price": 3,
            "slots": 4,
            "attested_until_ms": challenge.time_ms + YEAR_MS,
        }
        body = signed_messages.pack_message(signed_messages.Registration(**(fields | told)))
        return pb.RegisterRequest(body=body, signature=self.key.sign(signed_messages.to_sign_registration(body)))

    async def register(self, **told: Any) -> pb.RegisterResponse:
        return await self.stub.Register(await self.registration(**told), timeout=PATIENCE_S)  # type: ignore[no-any-return]

    async def register_and_stake(self) -> None:
        """Registered and staked; only its heartbeat is missing."""
        await self.register()
        node, account = self.node, AccountId(self.name)
        await node.do(Mint(ReservationId(node.new_id()), account, Amount(10_000)))
        await node.do(Stake(self.id, Amount(10_000), node.new_id()))

    async def start_work(self) -> WorkStreamDriver:
        """Active, on a stream, welcomed."""
        await self.register_and_stake()
        stream = await self.open()
        await stream.act(AgentAct("beat", slots=4))
        return stream

    # -------------------------------------------------------------------------------------------- working

    async def open(self) -> WorkStreamDriver:
        stream = WorkStreamDriver(self, self.stub.Work())
        await stream.open()
        return stream

    async def lease_job(self, stream: WorkStreamDriver, prompt: str = "hi") -> pb.Offer:
        """A job that was offered to this one."""
        await self.node.enqueue(prompt)
        await self.node.match()
        return (await stream.read("offer")).offer  # type: ignore[no-any-return]

    def header(self, offer: pb.Offer, output: bytes, **told: Any) -> pb.OutputHeader:
        fields: dict[str, Any] = {"lease_id": offer.lease_id, "digest": result_digest(output), "size": len(output)}
        fields |= told
        signature = self.key.sign(signed_messages.to_sign_output(fields["lease_id"], fields["digest"], fields["size"]))
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

    async def open_evidence(self, session: str = "s1", **told: Any) -> EvidenceStreamDriver:
        stream = EvidenceStreamDriver(self, self.evidence_stub.Stream(), session)
        await stream.open(**told)
        return stream

    def completed_record(self, offer: pb.Offer, output: bytes, /, **told: Any) -> tuple[str, dict[str, Any]]:
        """The record that submits a result."""
        said = self.completion(offer, output)
        payload = {"lease_id": offer.lease_id.hex(), "type": said.type, "method": said.method}
        payload |= {"body": said.body.hex(), "signature": said.signature.hex()}
        return "LEASE_COMPLETED", payload | told

    def completed_with_output(self, offer: pb.Offer, output: bytes, /, **told: Any) -> tuple[str, dict[str, Any]]:
        """The same with its output."""
        return self.completed_record(offer, output, **({"output": base64.b64encode(output).decode()} | told))

    def accepted_record(self, offer: pb.Offer, **told: Any) -> tuple[str, dict[str, Any]]:
        """The record that is the ACK of a lease."""
        signature = self.key.sign(signed_messages.to_sign_acceptance(offer.lease_id))
        return "LEASE_ACCEPTED", {"lease_id": offer.lease_id.hex(), "signature": signature.hex()} | told

    def failed_record(self, offer: pb.Offer, reason: str = "broken") -> tuple[str, dict[str, Any]]:
        signature = self.key.sign(signed_messages.to_sign_failure(offer.lease_id, reason))
        return "LEASE_FAILED", {"lease_id": offer.lease_id.hex(), "reason": reason, "signature": signature.hex()}


class Heard:
    """One thing that the node said: a message, or a part of its updates, under the name of its kind."""

    def __init__(self, kind: str, value: Any) -> None:
        self.kind = kind
        setattr(self, kind, value)

    def WhichOneof(self, _: str) -> str:  # noqa: N802 - as a message has it
        return self.kind

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the node said {self.kind}, not {name}")


def parts_of(message: pb.WorkResponse) -> list[Heard]:
    """What a message says, in the order in which an agent reads it."""
    kind = message.WhichOneof("message")
    if kind != "updates":
        return [Heard(str(kind), getattr(message, str(kind)))]
    told = message.updates
    each = (("lost", told.lost), ("verdict", told.verdicts), ("offer", told.offers), ("acts_done", told.acts_done))
    return [Heard(name, value) for name, values in each for value in values]


class WorkStreamDriver:
    """One work stream, part by part."""

    def __init__(self, agent: AgentDriver, call: Any) -> None:
        self.agent, self.call, self.nonce, self.count = agent, call, b"", 0
        self.welcome: Any = None
        self._early: list[Any] = []
        """What came while an answer was awaited: the node offers work whenever it has some."""
        self._parts: list[Heard] = []
        self.messages = 0

    async def open(self, **told: Any) -> None:
        self.nonce = (await self.read("challenge")).challenge.nonce
        signed = signed_messages.to_sign_open(self.nonce, self.agent.id, told.get("instance", b""))
        signature = self.agent.key.sign(signed)
        await self.call.write(
            pb.WorkRequest(open=pb.Open(**({"public": self.agent.key.public, "signature": signature} | told)))
        )
        self.welcome = (await self.read("welcome")).welcome

    async def read(self, kind: str) -> Any:
        """The next message, which must be of this kind."""
        message = await self.read_any()
        assert message.WhichOneof("message") == kind, message
        return message

    async def read_any(self) -> Any:
        return self._early.pop(0) if self._early else await self._next()

    async def _next(self) -> Any:
        if not self._parts:
            async with asyncio.timeout(PATIENCE_S):
                message = await self.call.read()
            assert message is not EOF, "the stream has ended"
            self.messages += 1
            self._parts = parts_of(message)
        return self._parts.pop(0)

    def signed(self, *said: AgentAct, **told: Any) -> pb.WorkRequest:
        self.count += 1
        fields: dict[str, Any] = {"nonce": self.nonce, "count": self.count, "acts": list(said)}
        body = signed_messages.pack_message(signed_messages.ActBatch(**(fields | told)))
        signature = self.agent.key.sign(signed_messages.to_sign_acts(body))
        return pb.WorkRequest(acts=pb.SignedActs(body=body, signature=signature))

    async def act(self, *said: AgentAct, **told: Any) -> list[pb.ActOutcome]:
        await self.call.write(self.signed(*said, **told))
        while (message := await self._next()).WhichOneof("message") == "offer":
            self._early.append(message)
        assert message.WhichOneof("message") == "acts_done", message
        done = message.acts_done
        assert done.count == self.count
        return list(done.outcomes)

    async def refused(self, request: pb.WorkRequest | None = None) -> CallFailure:
        """How the stream ends, after this request or by itself."""
        if request is not None:
            await self.call.write(request)
        return await refusal(self.call.read())


class EvidenceStreamDriver:
    """One evidence stream, message by message."""

    def __init__(self, agent: AgentDriver, call: Any, session: str) -> None:
        self.agent, self.call, self.session = agent, call, session
        self.channel = agent.id.hex()
        self.ack: Any = None

    async def open(self, **told: Any) -> None:
        nonce = (await self.read("challenge")).challenge.nonce
        names = {"channel_id": self.channel, "session_id": self.session}
        signature = self.agent.key.sign(signed_messages.to_sign_hello(nonce, names["channel_id"], names["session_id"]))
        fields: dict[str, Any] = names | {"public": self.agent.key.public, "signature": signature} | told
        if "channel_id" in told:
            fields["signature"] = self.agent.key.sign(
                signed_messages.to_sign_hello(nonce, told["channel_id"], self.session)
            )
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

    async def send_and_ack(self, first: int, lines: list[bytes]) -> int:
        """Send, and the acknowledged sequence."""
        await self.send(first, lines)
        return int((await self.read("ack")).ack.acked_sequence)

    async def send_and_refusal(self, first: int, lines: list[bytes]) -> epb.Refusal:
        await self.send(first, lines)
        return (await self.read("refusal")).refusal  # type: ignore[no-any-return]

    async def stored_lines(self) -> list[bytes]:
        """What the node holds of this session."""
        return [line async for line in read_session_lines(self.agent.node.engine, self.channel, self.session)]

    def lines(self, first: int, *records: tuple[str, dict[str, Any]]) -> list[bytes]:
        """Lines as the spool writes them, without their ends."""
        encoder = Encoder(self.channel, self.session, bytes(range(16)))
        return [
            encoder.line(sequence, 1_000_000, f'"{kind}"', msgspec.json.encode(payload)).rstrip(b"\n")
            for sequence, (kind, payload) in enumerate(records, start=first)
        ]

    def progress_lines(self, first: int, last: int) -> list[bytes]:
        """Records that ask for nothing."""
        return self.lines(first, *(("PROGRESS", {"percent": number}) for number in range(first, last + 1)))


async def refusal(call: Any) -> CallFailure:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(PATIENCE_S):
            await call
    return call_failure(caught.value)


async def until(is_so: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.005)
