"""How a provider registers at a node: challenges for its key, attestations, and its declarations."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.grpc.agent_driver import AgentDriver, AgentNode, agent_node, refusal

from holdfast.adapters.keys.signing import SigningKey
from holdfast.api.grpc.services import agent_context
from holdfast.api.grpc.services import nonces as challenge
from holdfast.api.grpc.services.nonces import NONCE_MS, Nonces
from holdfast.core.base.canonical import canonical
from holdfast.core.base.values import LeaseId
from holdfast.core.provider.decide import capabilities_digest
from holdfast.core.provider.messages import ProviderDrained, ProviderStatusChanged
from holdfast.core.provider.model import ProviderStatus
from holdfast.core.state_digest import digest
from holdfast.wire import signed_messages
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb
from holdfast.wire.signed_messages import AgentAct, Attestation, Declaration

ECHO = {"AI": {"models": ["echo", "sleep"]}}
SKEW_MS = 180_000


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[AgentNode]:
    async with agent_node(tmp_path) as node:
        yield node


@pytest.fixture
def oak(node: AgentNode) -> AgentDriver:
    return AgentDriver(node)


# ------------------------------------------------------------------------------------------------ challenges


@pytest.mark.rule("PRV-001", "PRV-003")
def test_a_nonce_is_good_for_its_key_for_a_minute_and_once() -> None:
    nonces, ours, theirs = Nonces(), b"o" * 32, b"t" * 32
    nonce = nonces.make(1_000, ours)
    assert nonces.is_good(nonce, 1_000 + NONCE_MS - 1, ours)
    assert not nonces.is_good(nonce, 1_000 + NONCE_MS, ours)
    assert not nonces.is_good(nonce, 1_000, theirs)
    assert not nonces.use(nonce, 1_000, theirs)
    assert nonces.use(nonce, 1_000, ours)
    assert not nonces.use(nonce, 1_000, ours)
    assert not Nonces().is_good(nonces.make(1_000, ours), 1_000, ours), "another process has another seal"


@pytest.mark.rule("PRV-003")
def test_no_bit_of_a_nonce_can_be_changed() -> None:
    nonces = Nonces()
    nonce = nonces.make(1_000, b"k" * 32)
    for bit in range(256):
        changed = bytearray(nonce)
        changed[bit // 8] ^= 1 << bit % 8
        assert not nonces.is_good(bytes(changed), 1_000, b"k" * 32)
    assert not nonces.is_good(nonce + b"\0", 1_000, b"k" * 32)


def test_asking_for_many_challenges_takes_none_from_others() -> None:
    nonces = Nonces()
    first = nonces.make(0, b"k" * 32)
    for _ in range(20_000):
        nonces.make(0)
    assert nonces.use(first, 0, b"k" * 32)


def test_what_was_used_is_remembered_no_longer_than_it_could_be_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(challenge, "USED_MAX", 3)
    nonces = Nonces()
    assert [nonces.use(nonces.make(0), 0) for _ in range(4)] == [True, True, True, False], "replay is never let in"
    assert nonces.use(nonces.make(NONCE_MS), NONCE_MS)


@pytest.mark.rule("PRV-001")
async def test_a_challenge_made_for_one_key_is_no_use_to_another(node: AgentNode, oak: AgentDriver) -> None:
    ash = AgentDriver(node, "ash")
    asked = await ash.stub.GetChallenge(pb.GetChallengeRequest(public=ash.key.public))
    no = await refusal(oak.register(nonce=asked.nonce))
    assert (no.name, no.rule) == ("Unauthorized", "PRV-003")
    assert (await ash.register(nonce=asked.nonce)).status == "REGISTERED"


# ------------------------------------------------------------------------------------------------ attestations


def attested(node: AgentNode, key: SigningKey, **told: Any) -> Attestation:
    now_ms = node.engine.now_ms()
    fields: dict[str, Any] = {
        "verifier": "self-signed",
        "public": key.public,
        "not_before_ms": now_ms,
        "not_after_ms": now_ms + 1_000_000,
        "claims": capabilities_digest(canonical(ECHO)),
        "versions": "agent 7",
    }
    bare = Attestation(**(fields | {name: value for name, value in told.items() if name != "evidence"}))
    evidence = told.get("evidence", key.sign(signed_messages.to_sign_attestation(bare)))
    return Attestation(**({name: getattr(bare, name) for name in bare.__struct_fields__} | {"evidence": evidence}))


@pytest.mark.rule("PRV-001")
async def test_an_attestation_is_checked_and_says_for_how_long_and_by_whom(node: AgentNode, oak: AgentDriver) -> None:
    shown = attested(node, oak.key)
    await oak.register(attestation=shown)
    provider = node.engine.undurable_state.providers[oak.id]
    told = (provider.attestor, provider.versions, provider.attested_until_ms)
    assert told == ("self-signed", "agent 7", shown.not_after_ms)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"verifier": "oracle"}, "no verifier 'oracle'"),
    ({"public": bytes(32)}, "another key"),
    ({"claims": bytes(32)}, "other capabilities"),
    ({"evidence": bytes(64)}, "signature verification failed"),
]


@pytest.mark.rule("PRV-001")
@pytest.mark.parametrize(("change", "says"), WRONG)
async def test_what_is_wrong_with_an_attestation_is_named_and_nothing_is_taken_in(
    node: AgentNode, oak: AgentDriver, change: dict[str, Any], says: str
) -> None:
    no = await refusal(oak.register(attestation=attested(node, oak.key, **change)))
    assert (no.name, no.rule) == ("AttestationRefused", "PRV-001")
    assert says in no.message
    assert node.engine.undurable_state.providers == {}


@pytest.mark.rule("PRV-001")
@pytest.mark.parametrize(
    ("before_ms", "after_ms", "is_good"),
    [
        (SKEW_MS, 10**6, True),
        (SKEW_MS + 1, 10**6, False),
        (-(10**6), -SKEW_MS + 1, True),
        (-(10**6), -SKEW_MS, False),
        (5, 5, False),
    ],
)
async def test_its_window_holds_with_the_skew_that_clocks_may_have(
    node: AgentNode, oak: AgentDriver, before_ms: int, after_ms: int, is_good: bool
) -> None:
    now_ms = node.engine.now_ms()
    shown = attested(node, oak.key, not_before_ms=now_ms + before_ms, not_after_ms=now_ms + after_ms)
    if is_good:
        assert (await oak.register(attestation=shown)).status == "REGISTERED"
    else:
        assert (await refusal(oak.register(attestation=shown))).name == "AttestationRefused"


@pytest.mark.rule("PRV-001")
async def test_another_verifier_is_a_function_by_its_name(node: AgentNode, oak: AgentDriver) -> None:
    def hardware(told: Attestation, _: object) -> str | None:
        return None if told.evidence == b"chip 7" else "no such chip"

    node.agent_context.attestors = {"hardware": hardware}
    bad = await refusal(oak.register(attestation=attested(node, oak.key, verifier="hardware", evidence=b"chip 8")))
    assert "no such chip" in bad.message
    await oak.register(attestation=attested(node, oak.key, verifier="hardware", evidence=b"chip 7"))
    assert node.engine.undurable_state.providers[oak.id].attestor == "hardware"


@pytest.mark.rule("PRV-001")
async def test_an_attestor_that_hangs_or_breaks_delays_no_other_call_and_gives_no_verdict(
    node: AgentNode, oak: AgentDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = threading.Event()

    def broken(_: Attestation, __: object) -> str:
        raise ConnectionError("the vendor's service is down")

    def hangs(_: Attestation, __: object) -> str:
        is_over.wait()
        return "too late"

    node.agent_context.attestors = {**node.agent_context.attestors, "broken": broken, "hangs": hangs}
    try:
        with monkeypatch.context() as hasty:
            hasty.setattr(agent_context, "ATTEST_S", 0.05)
            for verifier in ("broken", "hangs", "hangs", "hangs"):
                no = await refusal(oak.register(attestation=attested(node, oak.key, verifier=verifier)))
                assert (no.name, no.rule) == ("Unavailable", "PRV-001")
        assert oak.id not in node.engine.undurable_state.providers
        await oak.register(attestation=attested(node, oak.key))
        assert node.engine.undurable_state.providers[oak.id].attestor == "self-signed"
    finally:
        is_over.set()


# ------------------------------------------------------------------------------------------------ declarations


async def declaration(hand: AgentDriver, act: str, new: SigningKey | None = None, **told: Any) -> pb.DeclareRequest:
    asked = pb.GetChallengeRequest(public=hand.key.public)
    nonce = (await hand.stub.GetChallenge(asked)).nonce
    if new is not None:
        told["new_public"] = new.public
    body = signed_messages.pack_message(Declaration(**({"nonce": nonce, "public": hand.key.public, "act": act} | told)))
    signed = signed_messages.to_sign_declaration(body)
    second = new.sign(signed) if new is not None else b""
    return pb.DeclareRequest(body=body, signature=hand.key.sign(signed), new_signature=second)


async def declare(hand: AgentDriver, act: str, new: SigningKey | None = None, **told: Any) -> pb.DeclareResponse:
    return await hand.stub.Declare(await declaration(hand, act, new, **told))  # type: ignore[no-any-return]


@pytest.mark.rule("PRV-001", "PRV-003")
async def test_a_provider_drains_unstakes_and_retires(node: AgentNode, oak: AgentDriver) -> None:
    await oak.start_work()
    state = node.engine.undurable_state
    await declare(oak, "drain", reason="new disks")
    assert state.providers[oak.id].is_draining
    await declare(oak, "undrain")
    assert not state.providers[oak.id].is_draining
    taken = await declare(oak, "unstake", amount=10_000, request=bytes(32))
    assert (taken.status, state.providers[oak.id].unstaking) == ("REGISTERED", 10_000)
    assert (await declare(oak, "unstake", amount=10_000, request=bytes(32))).is_repeat
    assert (await declare(oak, "retire")).status == "RETIRED"
    events = [
        each for batch in node.batches() for each in batch if isinstance(each, ProviderDrained | ProviderStatusChanged)
    ]
    assert events[-1].actor == oak.id.hex()


@pytest.mark.rule("PRV-003")
@pytest.mark.parametrize("wrong", ["signature", "nonce", "twice", "act", "stranger"])
async def test_a_declaration_that_is_forged_or_replayed_changes_nothing(
    node: AgentNode, oak: AgentDriver, wrong: str
) -> None:
    await oak.register()
    request = await declaration(oak, "dance" if wrong == "act" else "drain")
    if wrong == "signature":
        request.signature = bytes(64)
    if wrong == "nonce":
        request = await declaration(oak, "drain", nonce=bytes(32))
    if wrong == "twice":
        await oak.stub.Declare(request)
    if wrong == "stranger":
        request = await declaration(AgentDriver(node, "ash"), "drain")
    before = digest(node.engine.undurable_state)
    no = await refusal(oak.stub.Declare(request))
    assert no.name == {"act": "InvalidParams", "stranger": "NotFound"}.get(wrong, "Unauthorized")
    assert digest(node.engine.undurable_state) == before


@pytest.mark.rule("PRV-003")
async def test_after_a_change_of_the_key_the_new_one_belongs_to_the_same_provider_and_the_old_one_is_refused(
    node: AgentNode, oak: AgentDriver
) -> None:
    await oak.start_work()
    new = SigningKey.generate()
    done = await declare(oak, "rotate", new)
    assert done.provider_id == oak.id
    old = AgentDriver(node, "oak", oak.key)
    for attempt in (old.register(), old.open(), declare(old, "drain")):
        no = await refusal(attempt)
        assert (no.name, no.message) == ("Unauthorized", "this key was replaced")
    hand = AgentDriver(node, "oak", new)
    hand.id = oak.id
    stream = await hand.open()
    assert stream.welcome.provider_id == oak.id
    assert [each.is_done for each in await stream.act(AgentAct("beat", slots=2))] == [True]
    offer = await hand.lease_job(stream)
    assert await hand.put(offer, b"said")
    await hand.complete(hand.completion(offer, b"said"))
    assert node.engine.undurable_state.leases.by_id[LeaseId(offer.lease_id)].submitted is not None
    assert (await hand.register(price=7)).provider_id == oak.id


@pytest.mark.rule("PRV-003")
async def test_a_key_is_changed_only_if_both_have_signed(node: AgentNode, oak: AgentDriver) -> None:
    await oak.register()
    new = SigningKey.generate()
    request = await declaration(oak, "rotate", new)
    request.new_signature = oak.key.sign(b"something else")
    no = await refusal(oak.stub.Declare(request))
    assert (no.name, "new key" in no.message) == ("Unauthorized", True)
    assert node.engine.undurable_state.providers[oak.id].signing_key == oak.key.public


# ------------------------------------------------------------------------------------------------ heartbeats


@pytest.mark.rule("PRV-002")
async def test_a_heartbeat_tells_load_versions_and_support(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.start_work()
    good = AgentAct("beat", slots=3, load=1, versions="agent 8", support=capabilities_digest(canonical(ECHO)))
    changed = AgentAct("beat", slots=3, support=bytes(32))
    told = await stream.act(good, changed)
    assert [(each.is_done, each.rule) for each in told] == [(True, ""), (False, "PRV-002")]
    provider = node.engine.undurable_state.providers[oak.id]
    assert (provider.slots, provider.load, provider.versions) == (3, 1, "agent 8")
    assert provider.status is ProviderStatus.ACTIVE


# ------------------------------------------------------------------------------------------------ many of them


class Unscanned(dict[Any, Any]):
    """Leases that can be looked up and not walked over."""

    def __iter__(self) -> Any:
        raise AssertionError("all leases were walked over")

    values = items = keys = __iter__


async def test_a_stream_is_opened_without_looking_through_everybody_s_leases(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.start_work()
    offer = await oak.lease_job(stream)
    leases = node.engine.undurable_state.leases
    before, leases.by_id = leases.by_id, Unscanned(leases.by_id)
    again = await oak.open()
    assert (await again.read("offer")).offer.lease_id == offer.lease_id
    leases.by_id = before
