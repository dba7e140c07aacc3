"""How a provider comes to stand at a node: challenges for its key, attestations, and what it declares of itself."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.doors.agents import Hand, House, housed, refusal

from holdfast.adapters.keys.signing import SigningKey
from holdfast.core.canon import canonical
from holdfast.core.provider.acts import ProviderDrained, ProviderMoved
from holdfast.core.provider.decide import support_of
from holdfast.core.provider.record import ProviderStatus
from holdfast.core.state import digest
from holdfast.core.values import LeaseId
from holdfast.doors.grpc import agentdesk, challenge
from holdfast.doors.grpc.challenge import NONCE_MS, Nonces
from holdfast.wire import acts
from holdfast.wire.acts import Act, Attestation, Declaration
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb

ECHO = {"AI": {"models": ["echo"]}}
SKEW_MS = 180_000


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with housed(tmp_path) as house:
        yield house


@pytest.fixture
def oak(house: House) -> Hand:
    return Hand(house)


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
async def test_a_challenge_made_for_one_key_is_no_use_to_another(house: House, oak: Hand) -> None:
    ash = Hand(house, "ash")
    asked = await ash.stub.GetChallenge(pb.GetChallengeRequest(public=ash.key.public))
    no = await refusal(oak.register(nonce=asked.nonce))
    assert (no.name, no.rule) == ("Unauthorized", "PRV-003")
    assert (await ash.register(nonce=asked.nonce)).status == "REGISTERED"


# ------------------------------------------------------------------------------------------------ attestations


def attested(house: House, key: SigningKey, **told: Any) -> Attestation:
    now_ms = house.engine.now_ms()
    fields: dict[str, Any] = {
        "verifier": "self-signed",
        "public": key.public,
        "not_before_ms": now_ms,
        "not_after_ms": now_ms + 1_000_000,
        "claims": support_of(canonical(ECHO)),
        "versions": "agent 7",
    }
    bare = Attestation(**(fields | {name: value for name, value in told.items() if name != "evidence"}))
    evidence = told.get("evidence", key.sign(acts.to_sign_attestation(bare)))
    return Attestation(**({name: getattr(bare, name) for name in bare.__struct_fields__} | {"evidence": evidence}))


@pytest.mark.rule("PRV-001")
async def test_an_attestation_is_checked_and_says_for_how_long_and_by_whom(house: House, oak: Hand) -> None:
    shown = attested(house, oak.key)
    await oak.register(attestation=shown)
    provider = house.engine.state.providers[oak.id]
    told = (provider.attestor, provider.versions, provider.attested_until_ms)
    assert told == ("self-signed", "agent 7", shown.not_after_ms)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"verifier": "oracle"}, "no verifier 'oracle'"),
    ({"public": bytes(32)}, "another key"),
    ({"claims": bytes(32)}, "other capabilities"),
    ({"evidence": bytes(64)}, "signature does not fit"),
]


@pytest.mark.rule("PRV-001")
@pytest.mark.parametrize(("change", "says"), WRONG)
async def test_what_is_wrong_with_an_attestation_is_named_and_nothing_is_taken_in(
    house: House, oak: Hand, change: dict[str, Any], says: str
) -> None:
    no = await refusal(oak.register(attestation=attested(house, oak.key, **change)))
    assert (no.name, no.rule) == ("AttestationRefused", "PRV-001")
    assert says in no.says
    assert house.engine.state.providers == {}


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
    house: House, oak: Hand, before_ms: int, after_ms: int, is_good: bool
) -> None:
    now_ms = house.engine.now_ms()
    shown = attested(house, oak.key, not_before_ms=now_ms + before_ms, not_after_ms=now_ms + after_ms)
    if is_good:
        assert (await oak.register(attestation=shown)).status == "REGISTERED"
    else:
        assert (await refusal(oak.register(attestation=shown))).name == "AttestationRefused"


@pytest.mark.rule("PRV-001")
async def test_another_verifier_is_a_function_by_its_name(house: House, oak: Hand) -> None:
    def hardware(told: Attestation, _: object) -> str | None:
        return None if told.evidence == b"chip 7" else "no such chip"

    house.at.attestors = {"hardware": hardware}
    bad = await refusal(oak.register(attestation=attested(house, oak.key, verifier="hardware", evidence=b"chip 8")))
    assert "no such chip" in bad.says
    await oak.register(attestation=attested(house, oak.key, verifier="hardware", evidence=b"chip 7"))
    assert house.engine.state.providers[oak.id].attestor == "hardware"


@pytest.mark.rule("PRV-001")
async def test_an_attestor_that_hangs_or_breaks_holds_up_nobody_and_judges_nobody(
    house: House, oak: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = threading.Event()

    def broken(_: Attestation, __: object) -> str:
        raise ConnectionError("the vendor's service is down")

    def hangs(_: Attestation, __: object) -> str:
        is_over.wait()
        return "too late"

    house.at.attestors = {**house.at.attestors, "broken": broken, "hangs": hangs}
    try:
        with monkeypatch.context() as hasty:
            hasty.setattr(agentdesk, "ATTEST_S", 0.05)
            for verifier in ("broken", "hangs", "hangs", "hangs"):
                no = await refusal(oak.register(attestation=attested(house, oak.key, verifier=verifier)))
                assert (no.name, no.rule) == ("Unavailable", "PRV-001")
        assert oak.id not in house.engine.state.providers
        await oak.register(attestation=attested(house, oak.key))
        assert house.engine.state.providers[oak.id].attestor == "self-signed"
    finally:
        is_over.set()


# ------------------------------------------------------------------------------------------------ declarations


async def declaration(hand: Hand, act: str, new: SigningKey | None = None, **told: Any) -> pb.DeclareRequest:
    asked = pb.GetChallengeRequest(public=hand.key.public)
    nonce = (await hand.stub.GetChallenge(asked)).nonce
    if new is not None:
        told["new_public"] = new.public
    body = acts.pack(Declaration(**({"nonce": nonce, "public": hand.key.public, "act": act} | told)))
    signed = acts.to_sign_declaration(body)
    second = new.sign(signed) if new is not None else b""
    return pb.DeclareRequest(body=body, signature=hand.key.sign(signed), new_signature=second)


async def declare(hand: Hand, act: str, new: SigningKey | None = None, **told: Any) -> pb.DeclareResponse:
    return await hand.stub.Declare(await declaration(hand, act, new, **told))  # type: ignore[no-any-return]


@pytest.mark.rule("PRV-001", "PRV-003")
async def test_a_provider_drains_takes_its_stake_back_and_retires(house: House, oak: Hand) -> None:
    await oak.at_work()
    state = house.engine.state
    await declare(oak, "drain", reason="new disks")
    assert state.providers[oak.id].is_draining
    await declare(oak, "undrain")
    assert not state.providers[oak.id].is_draining
    taken = await declare(oak, "unstake", amount=10_000, request=bytes(32))
    assert (taken.status, state.providers[oak.id].unstaking) == ("REGISTERED", 10_000)
    assert (await declare(oak, "unstake", amount=10_000, request=bytes(32))).is_repeat
    assert (await declare(oak, "retire")).status == "RETIRED"
    events = [each for batch in house.batches() for each in batch if isinstance(each, ProviderDrained | ProviderMoved)]
    assert events[-1].actor == oak.id.hex()


@pytest.mark.rule("PRV-003")
@pytest.mark.parametrize("wrong", ["signature", "nonce", "twice", "act", "stranger"])
async def test_a_declaration_that_is_forged_or_replayed_changes_nothing(house: House, oak: Hand, wrong: str) -> None:
    await oak.register()
    request = await declaration(oak, "dance" if wrong == "act" else "drain")
    if wrong == "signature":
        request.signature = bytes(64)
    if wrong == "nonce":
        request = await declaration(oak, "drain", nonce=bytes(32))
    if wrong == "twice":
        await oak.stub.Declare(request)
    if wrong == "stranger":
        request = await declaration(Hand(house, "ash"), "drain")
    before = digest(house.engine.state)
    no = await refusal(oak.stub.Declare(request))
    assert no.name == {"act": "InvalidParams", "stranger": "NotFound"}.get(wrong, "Unauthorized")
    assert digest(house.engine.state) == before


@pytest.mark.rule("PRV-003")
async def test_after_a_change_of_the_key_the_new_one_speaks_for_the_same_provider_and_the_old_one_for_nobody(
    house: House, oak: Hand
) -> None:
    await oak.at_work()
    new = SigningKey.generate()
    done = await declare(oak, "rotate", new)
    assert done.provider_id == oak.id
    old = Hand(house, "oak", oak.key)
    for attempt in (old.register(), old.open(), declare(old, "drain")):
        no = await refusal(attempt)
        assert (no.name, no.says) == ("Unauthorized", "this key was replaced")
    hand = Hand(house, "oak", new)
    hand.id = oak.id
    stream = await hand.open()
    assert stream.welcome.provider_id == oak.id
    assert [each.is_done for each in await stream.act(Act("beat", slots=2))] == [True]
    offer = await hand.leased(stream)
    assert await hand.put(offer, b"said")
    await hand.complete(hand.completion(offer, b"said"))
    assert house.engine.state.leases.by_id[LeaseId(offer.lease_id)].submitted is not None
    assert (await hand.register(price=7)).provider_id == oak.id


@pytest.mark.rule("PRV-003")
async def test_a_key_is_changed_only_if_both_have_signed(house: House, oak: Hand) -> None:
    await oak.register()
    new = SigningKey.generate()
    request = await declaration(oak, "rotate", new)
    request.new_signature = oak.key.sign(b"something else")
    no = await refusal(oak.stub.Declare(request))
    assert (no.name, "new key" in no.says) == ("Unauthorized", True)
    assert house.engine.state.providers[oak.id].signing_key == oak.key.public


# ------------------------------------------------------------------------------------------------ heartbeats


@pytest.mark.rule("PRV-002")
async def test_a_heartbeat_tells_load_versions_and_support(house: House, oak: Hand) -> None:
    stream = await oak.at_work()
    good = Act("beat", slots=3, load=1, versions="agent 8", support=support_of(canonical(ECHO)))
    changed = Act("beat", slots=3, support=bytes(32))
    told = await stream.act(good, changed)
    assert [(each.is_done, each.rule) for each in told] == [(True, ""), (False, "PRV-002")]
    provider = house.engine.state.providers[oak.id]
    assert (provider.slots, provider.load, provider.versions) == (3, 1, "agent 8")
    assert provider.status is ProviderStatus.ACTIVE


# ------------------------------------------------------------------------------------------------ many of them


class Unscanned(dict[Any, Any]):
    """Leases that can be looked up and not walked over."""

    def __iter__(self) -> Any:
        raise AssertionError("all leases were walked over")

    values = items = keys = __iter__


async def test_a_stream_is_opened_without_looking_through_everybody_s_leases(house: House, oak: Hand) -> None:
    stream = await oak.at_work()
    offer = await oak.leased(stream)
    leases = house.engine.state.leases
    before, leases.by_id = leases.by_id, Unscanned(leases.by_id)
    again = await oak.open()
    assert (await again.read("offer")).offer.lease_id == offer.lease_id
    leases.by_id = before
