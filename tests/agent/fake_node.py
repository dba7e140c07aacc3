"""A small node for agents: real gRPC on a loopback port, leases and evidence in memory, and faults on demand.

It outlives its server: `stop` and `start` are a restart of the node, which has forgotten nothing it has acked. Every
signature is checked, so that an agent which passes here has signed what the wire says.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import msgspec
from tests.loopback_ports import free_port

from holdfast.adapters.keys.signing import verify
from holdfast.core.base.canonical import canonical
from holdfast.core.proof.envelope import ProofBody, read_body, signed_bytes
from holdfast.core.provider.model import provider_id
from holdfast.core.result.ids import result_digest
from holdfast.wire import signed_messages
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2 as ev
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2_grpc
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2_grpc
from holdfast.wire.group_signatures import verify_signature

NONCE = b"n" * 32
EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]


class FakeLease(msgspec.Struct):
    """A lease as the node has it."""

    id: bytes
    payload: dict[str, Any]
    t_start_ms: int
    t_ms: int
    is_acked: bool = False
    renewals: int = 0
    submitted: bytes = b""
    ended_reason: str = ""
    """Why it is not live any more."""


class FakeNode:
    """What the node knows, whether its server is up or not."""

    def __init__(self) -> None:
        self.registrations_wanted = 0
        """Until there are as many, heartbeats are refused: another agent of the same key has registered."""
        self.port = free_port()
        self.status, self.stake, self.heartbeat_ms = "ACTIVE", 10_000, 60_000
        self.leases: dict[bytes, FakeLease] = {}
        self.registrations: list[signed_messages.Registration] = []
        self.acts: list[signed_messages.AgentAct] = []
        self.evidence: dict[str, list[bytes]] = {}
        """Durable lines by session."""
        self.outputs: dict[bytes, bytes] = {}
        self.submissions: Counter[bytes] = Counter()
        self.signatures: set[bytes] = set()
        """All different signatures of requests."""
        self.hellos: list[ev.Hello] = []
        self.records_in = self.duplicates = 0
        self.open_streams: set[str] = set()
        self.bytes_unacked = 0
        """Bytes of lines that came since the last ack went out."""
        self.is_judging = True
        """Gives a verdict as soon as a result is handed in."""
        self.credit = 1 << 20
        self.accepts = True
        # Faults, each for as long as the test says.
        self.cut_work_after: int | None = None
        self.cut_evidence_after: int | None = None
        self.lose_acks = 0
        self.answer_hello: Callable[[int], int] = lambda mark: mark
        self.answer_records: Callable[[int], int] = lambda mark: mark
        self.refuse_uploads = 0
        self.refuse_output: tuple[str, str] | None = None
        self.is_key_taken = False
        """Another agent of the key works."""
        self.is_unresponsive = False
        """Does not even answer a hello."""
        self.may_ack = asyncio.Event()
        """While it is not set, records are taken and not acked."""
        self.may_ack.set()
        self._streams: dict[bytes, asyncio.Queue[pb.WorkResponse]] = {}
        self._server: Any = None
        self._collecting: pb.Updates | None = None

    # ------------------------------------------------------------------------------------ up and down

    async def start(self, tls: grpc.ServerCredentials | None = None) -> None:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        provider_pb2_grpc.add_ProviderServiceServicer_to_server(_Provider(self), server)  # type: ignore[no-untyped-call]
        evidence_pb2_grpc.add_EvidenceServiceServicer_to_server(_Evidence(self), server)  # type: ignore[no-untyped-call]
        address = f"127.0.0.1:{self.port}"
        bound = server.add_secure_port(address, tls) if tls is not None else server.add_insecure_port(address)
        assert bound == self.port
        await server.start()
        self._server = server

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None
            self._streams.clear()

    # ------------------------------------------------------------------------------------ what a test does

    def offer(self, prompt: str, model: str = "echo", t_ms: int = 600_000, **params: int) -> bytes:
        """Give a lease; the agent hears of it now, or when it connects."""
        lease_id = hashlib.sha256(prompt.encode()).digest()
        payload = {"kind": "AI", "spec": {"model": model, "prompt": prompt, "params": params}}
        self.leases[lease_id] = FakeLease(lease_id, payload, now_ms(), t_ms)
        self.send_to_agents(pb.Updates(offers=[self.offer_of(self.leases[lease_id])]))
        return lease_id

    def lose(self, lease_id: bytes, reason: str = "LEASE_EXPIRED") -> None:
        self.leases[lease_id].ended_reason = reason
        self.send_to_agents(pb.Updates(lost=[pb.Lost(lease_id=lease_id, reason=reason)]))

    def send_verdict(self, lease_id: bytes, *, is_accepted: bool = True) -> None:
        self.leases[lease_id].ended_reason = "JUDGED"
        self.send_to_agents(pb.Updates(verdicts=[pb.Verdict(lease_id=lease_id, is_accepted=is_accepted, reason="x")]))

    def offer_many(self, prompts: list[str], model: str = "echo") -> list[bytes]:
        """Give leases in one message."""
        with self.collected():
            return [self.offer(prompt, model) for prompt in prompts]

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Inside, what is sent to agents piles up and becomes one message."""
        self._collecting = pb.Updates()
        try:
            yield
        finally:
            told, self._collecting = self._collecting, None
            self.send_to_agents(told)

    def send_to_agents(self, updates: pb.Updates) -> None:
        if self._collecting is not None:
            self._collecting.MergeFrom(updates)
            return
        for stream in self._streams.values():
            stream.put_nowait(pb.WorkResponse(updates=updates))

    @property
    def connected(self) -> int:
        return len(self._streams)

    def end_work_streams(self) -> None:
        """End all work streams."""
        for stream in self._streams.values():
            stream.put_nowait(pb.WorkResponse())

    # ------------------------------------------------------------------------------------ what a test reads

    def record_types(self, lease_id: bytes) -> list[str]:
        """The types of all records of a lease, sessions in order."""
        return [each["payload_type"] for each in self.records() if lease_id.hex() in str(each["payload"])]

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for _, lines in sorted(self.evidence.items()) for line in lines]

    def acts_of(self, lease_id: bytes) -> list[str]:
        return [act.act for act in self.acts if act.lease_id == lease_id]

    def delivered(self) -> dict[bytes, int]:
        """How often each lease's completion is in the evidence."""
        found = [each for each in self.records() if each["payload_type"] == "LEASE_COMPLETED"]
        return dict(Counter(bytes.fromhex(each["payload"]["lease_id"]) for each in found))

    # ------------------------------------------------------------------------------------ rules

    def offer_of(self, lease: FakeLease) -> pb.Offer:
        deadline = lease.t_start_ms + lease.t_ms + lease.renewals * lease.t_ms // 2
        return pb.Offer(
            lease_id=lease.id,
            task_id=lease.id[::-1],
            kind=lease.payload["kind"],
            payload=canonical(lease.payload),
            t_start_ms=lease.t_start_ms,
            t_deadline_ms=deadline,
            renew_by_ms=deadline - lease.t_ms * 4 // 10,
            ack_by_ms=lease.t_start_ms + 5_000,
            time_ms=now_ms(),
            proof="attested",
            is_acked=lease.is_acked,
            is_submitted=bool(lease.submitted),
            renewals=lease.renewals,
        )

    def act(self, act: signed_messages.AgentAct) -> pb.ActOutcome:
        self.acts.append(act)
        if act.act == "beat" and len(self.registrations) < self.registrations_wanted:
            return pb.ActOutcome(name="Refused", rule="PRV-002", message="the capabilities are not the registered ones")
        if act.act == "beat":
            return pb.ActOutcome(is_done=True)
        lease = self.leases.get(act.lease_id)
        if lease is None or lease.ended_reason:
            return pb.ActOutcome(name="LeaseLost", rule="LEA-005", message="the lease is over")
        if lease.submitted:
            return pb.ActOutcome(name="Refused", rule="RCV-001", message="it waits for the verdict")
        match act.act:
            case "ack":
                lease.is_acked = True
            case "decline":
                lease.ended_reason = act.reason
            case "renew":
                if act.renewal != lease.renewals + 1:
                    return pb.ActOutcome(name="InvalidParams", rule="LEA-004", message="out of turn")
                if lease.renewals >= 4:
                    return pb.ActOutcome(name="Refused", rule="LEA-004", message="often enough")
                lease.renewals += 1
        return pb.ActOutcome(is_done=True)

    def store_record(self, line: bytes, public: bytes) -> None:
        """A record that is durable now; some change state."""
        record = json.loads(line)
        payload = record["payload"]
        if record["payload_type"] == "LEASE_ACCEPTED":
            lease_id = bytes.fromhex(payload["lease_id"])
            self._check_signed(public, signed_messages.to_sign_acceptance(lease_id), payload)
            self.leases[lease_id].is_acked = True
        if record["payload_type"] == "LEASE_COMPLETED":
            self._complete(payload, public)
        if record["payload_type"] == "LEASE_FAILED":
            lease_id = bytes.fromhex(payload["lease_id"])
            self._check_signed(public, signed_messages.to_sign_failure(lease_id, payload["reason"]), payload)
            self.leases[lease_id].ended_reason = "PROVIDER_FAIL"

    def _check_signed(self, public: bytes, message: bytes, payload: dict[str, Any]) -> None:
        signature = bytes.fromhex(payload["signature"])
        assert verify_signature(verify, public, message, signature)
        self.signatures.add(signature[:64])

    def _complete(self, payload: dict[str, Any], public: bytes) -> None:
        raw = bytes.fromhex(payload["body"])
        self._check_signed(public, signed_bytes(payload["type"], payload["method"], raw), payload)
        body = read_body(raw)
        assert isinstance(body, ProofBody)
        assert body.provider == provider_id(public)
        if (inline := payload.get("output")) is not None:
            output = base64.b64decode(inline, validate=True)
            assert (result_digest(output), len(output)) == (body.output_digest, body.output_size)
            assert len(output) <= signed_messages.OUTPUT_INLINE_BYTES_MAX
            self.outputs[body.output_digest] = output
        lease = self.leases[body.lease_id]
        if lease.ended_reason or lease.submitted:
            return
        assert body.output_digest in self.outputs, "the node must hold the bytes before"
        lease.submitted = body.output_digest
        self.submissions[lease.id] += 1
        if self.is_judging:
            self.send_verdict(lease.id, is_accepted=self.accepts)


class _Provider(provider_pb2_grpc.ProviderServiceServicer):
    def __init__(self, node: FakeNode) -> None:
        self._node = node

    async def GetChallenge(self, _: Any, __: Any) -> pb.GetChallengeResponse:  # noqa: N802
        return pb.GetChallengeResponse(nonce=NONCE, chain_id=1337, time_ms=now_ms())

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.RegisterResponse:  # noqa: N802
        if self._node.is_key_taken:
            trailers = (("holdfast-name", "Refused"), ("holdfast-rule", "RCV-002"), ("holdfast-hint", "wait"))
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "taken", trailers)
        told = signed_messages.read_registration(request.body)
        assert isinstance(told, signed_messages.Registration)
        assert verify(told.public, signed_messages.to_sign_registration(request.body), request.signature)
        self._node.registrations.append(told)
        node = self._node
        return pb.RegisterResponse(
            provider_id=provider_id(told.public), status=node.status, stake=node.stake, stake_min=10_000
        )

    async def Work(self, requests: AsyncIterator[pb.WorkRequest], context: Any) -> None:  # noqa: N802
        node = self._node
        nonce = hashlib.sha256(str(time.time_ns()).encode()).digest()
        await context.write(pb.WorkResponse(challenge=pb.Challenge(nonce=nonce)))
        opened = (await context.read()).open
        id_ = provider_id(opened.public)
        assert verify(opened.public, signed_messages.to_sign_open(nonce, id_, opened.instance), opened.signature)
        out = node._streams[nonce] = asyncio.Queue()
        welcome = pb.Welcome(provider_id=id_, status=node.status, time_ms=now_ms(), heartbeat_ms=node.heartbeat_ms)
        out.put_nowait(pb.WorkResponse(welcome=welcome))
        for lease in node.leases.values():
            if not lease.ended_reason:
                out.put_nowait(pb.WorkResponse(updates=pb.Updates(offers=[node.offer_of(lease)])))
        hearing = asyncio.create_task(self._read_acts(context, nonce, opened.public, out))
        try:
            while (message := await out.get()).WhichOneof("message"):
                await context.write(message)
                await _abort_after(node, "cut_work_after", context)
        finally:
            node._streams.pop(nonce, None)
            hearing.cancel()

    async def _read_acts(self, context: Any, nonce: bytes, public: bytes, out: asyncio.Queue[pb.WorkResponse]) -> None:
        count = 0
        while (request := await context.read()) is not EOF:
            body = request.acts.body
            assert verify(public, signed_messages.to_sign_acts(body), request.acts.signature)
            told = signed_messages.read_acts(body)
            assert isinstance(told, signed_messages.ActBatch)
            assert (told.nonce, told.count) == (nonce, count + 1)
            count = told.count
            outcomes = [self._node.act(act) for act in told.acts]
            done = pb.ActsDone(count=count, outcomes=outcomes)
            out.put_nowait(pb.WorkResponse(updates=pb.Updates(acts_done=[done])))
        out.put_nowait(pb.WorkResponse())

    async def PutOutput(self, requests: AsyncIterator[pb.PutOutputRequest], context: Any) -> Any:  # noqa: N802
        node = self._node
        header, parts, is_whole = pb.OutputHeader(), list[bytes](), False
        async for request in requests:
            match request.WhichOneof("message"):
                case "header":
                    header = request.header
                case "part":
                    parts.append(request.part)
                case "end":
                    is_whole = True
        assert is_whole
        if node.refuse_output is not None:
            name, rule = node.refuse_output
            trailers = (("holdfast-name", name), ("holdfast-rule", rule))
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no", trailers)
        if node.refuse_uploads:
            node.refuse_uploads -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        raw = b"".join(parts)
        assert (len(raw), result_digest(raw)) == (header.size, header.digest)
        signed = signed_messages.to_sign_output(header.lease_id, header.digest, header.size)
        assert verify(header.public, signed, header.signature)
        node.outputs[header.digest] = raw
        return pb.PutOutputResponse(digest=header.digest, size=header.size)


class _Evidence(evidence_pb2_grpc.EvidenceServiceServicer):
    def __init__(self, node: FakeNode) -> None:
        self._node = node

    async def Stream(self, requests: AsyncIterator[ev.StreamRequest], context: Any) -> None:  # noqa: N802
        node = self._node
        await context.write(ev.StreamResponse(challenge=ev.Challenge(nonce=NONCE)))
        hello = (await context.read()).hello
        signed = signed_messages.to_sign_hello(NONCE, hello.channel_id, hello.session_id)
        assert verify(hello.public, signed, hello.signature)
        assert hello.channel_id == provider_id(hello.public).hex()
        node.hellos.append(hello)
        lines = node.evidence.setdefault(hello.session_id, [])
        node.open_streams.add(hello.session_id)
        late = asyncio.create_task(self._ack_late(context, lines))
        try:
            await self._ack(context, node.answer_hello(len(lines)))
            while (request := await context.read()) is not EOF:
                await self._records(request.records, lines, hello.public, context)
                await _abort_after(node, "cut_evidence_after", context)
        finally:
            late.cancel()
            node.open_streams.discard(hello.session_id)

    async def _records(self, records: ev.Records, lines: list[bytes], public: bytes, context: Any) -> None:
        node = self._node
        node.records_in += len(records.lines)
        node.bytes_unacked += sum(map(len, records.lines))
        for sequence, line in enumerate(records.lines, records.first_sequence):
            assert json.loads(line)["sequence"] == sequence
            if sequence <= len(lines):
                assert lines[sequence - 1] == line, "the same sequence is the same record, byte for byte"
                node.duplicates += 1
            else:
                assert sequence == len(lines) + 1, "no gap"
                lines.append(line)
                node.store_record(line, public)
        if node.lose_acks:
            node.lose_acks -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the ack was lost")
        if node.may_ack.is_set():
            await self._ack(context, node.answer_records(len(lines)))

    async def _ack_late(self, context: Any, lines: list[bytes]) -> None:
        """What was held back is acked when it may be."""
        while True:
            await self._node.may_ack.wait()
            if self._node.bytes_unacked:
                await self._ack(context, len(lines))
            await asyncio.sleep(0.01)

    async def _ack(self, context: Any, watermark: int) -> None:
        if not self._node.is_unresponsive:
            self._node.bytes_unacked = 0
            ack = ev.Ack(acked_sequence=watermark, credit_bytes=self._node.credit)
            await context.write(ev.StreamResponse(ack=ack))


async def _abort_after(node: FakeNode, name: str, context: Any) -> None:
    """Cut the stream when so many messages have passed."""
    left = getattr(node, name)
    if left is None:
        return
    setattr(node, name, left - 1 if left > 1 else None)
    if left <= 1:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")


def now_ms() -> int:
    return time.time_ns() // 1_000_000
