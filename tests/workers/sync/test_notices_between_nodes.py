"""Notices between nodes (NTC-002 … NTC-005): sent until all have them, refused by name, lies told, keys rotated."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs
from tests.workers.archive.archive_node import archive_policy
from tests.workers.sync.conftest import Joined
from tests.workers.sync.sync_nodes import KEYS, OWNER

from holdfast.adapters.keys.keccak import address_of
from holdfast.core.archive.notice import ArchiveNotice, notice_root
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Digest, Height
from holdfast.core.blob.model import BlobStatus
from holdfast.core.policy_change.messages import AdoptPolicy
from holdfast.core.validator.messages import RemoveValidator
from holdfast.wire.peer_messages import encode_message
from holdfast.workers.archive.archiver import signed

RESEND_MS = 30_000


async def archived(joined: Joined, validators: int = 2) -> Height:
    """A blob of a height at which there are other validators, archived, with its notice sent once."""
    proposer = joined.proposer
    await proposer.add_blobs(b"the first makes a validator")
    await proposer.archiver.run_once()
    await proposer.pruner.run_once()
    await proposer.add_validators(KEYS[1 : 1 + validators])
    for number in range(1, 1 + validators):
        await joined.add(f"follower-{number}", KEYS[number]).run()
    height = await proposer.add_blobs(b"what counts")
    for follower in joined.followers.values():
        await follower.run()
    await proposer.archive_now()
    return height


@pytest.mark.rule("NTC-004", "OBS-001")
async def test_a_notice_is_sent_again_until_every_validator_has_confirmed_it(joined: Joined) -> None:
    proposer, network = joined.proposer, joined.network
    network.partition([OWNER, "follower-1"], ["follower-2"])
    height = await archived(joined)
    network.partition([OWNER, "follower-1"], ["follower-2"])
    await joined.deliver()
    (waiting,) = proposer.engine.undurable_state.notices_unconfirmed.values()
    assert waiting.confirmed == [KEYS[0].public, KEYS[1].public]
    assert proposer.metrics.propagation_ms.count == 1
    sent = proposer.sender.sent
    await proposer.sender.run_once()
    assert proposer.sender.sent == sent  # not before its time
    proposer.pass_ms(RESEND_MS)
    network.copies = 0  # this one is lost
    await proposer.sender.run_once()
    network.heal()
    assert proposer.sender.sent == sent + 1
    await proposer.pruner.run_once()  # its bytes go, its notice is sent on
    await proposer.seal()
    assert height not in proposer.engine.undurable_state.blob_heights
    proposer.pass_ms(RESEND_MS)
    network.copies, network.delay_rounds = 2, 3
    await proposer.sender.run_once()
    network.delay_rounds = 0
    await joined.deliver(8)
    assert proposer.engine.undurable_state.notices_unconfirmed == {}
    assert proposer.metrics.propagation_ms.count == 2  # a confirmation that came twice is one
    proposer.pass_ms(RESEND_MS)
    sent = proposer.sender.sent
    await proposer.sender.run_once()
    assert proposer.sender.sent == sent
    (blob,) = await joined.followers["follower-2"].blobs(height)
    assert blob.status is BlobStatus.ARCHIVED
    assert joined.followers["follower-1"].follower.metrics.failures == {}


@pytest.mark.rule("PRU-001", "NTC-004")
async def test_with_a_quorum_the_owner_keeps_its_bytes_until_two_thirds_have_confirmed(joined: Joined) -> None:
    proposer = joined.proposer
    await proposer.engine.submit(AdoptPolicy(archive_policy(prune_quorum=True), "test"))
    joined.network.partition([OWNER], ["follower-1"], ["follower-2"])
    await archived(joined)
    joined.network.partition([OWNER], ["follower-1"], ["follower-2"])
    joined.network.queue.clear()
    await proposer.pruner.run_once()
    assert len(proposer.packs) == 1
    joined.network.partition([OWNER, "follower-1"], ["follower-2"])
    proposer.pass_ms(RESEND_MS)
    await proposer.sender.run_once()
    await joined.deliver()
    await proposer.pruner.run_once()
    assert proposer.packs == []


REFUSALS: list[tuple[str, dict[str, Any]]] = [
    ("UnknownValidator", {"archived_by": bytes(20)}),
    ("ChainMismatch", {"chain_id": 7}),
    ("WrongRound", {"round": 1}),
    ("NotFound", {"blob_index": 9}),
    ("CommitmentMismatch", {"kzg_commitment": bytes(48)}),
    ("HashMismatch", {"versioned_hash": bytes(32)}),
    ("KeccakMismatch", {"blob_keccak": Digest(bytes(32))}),
]
CONFLICTS = {"CommitmentMismatch", "HashMismatch", "KeccakMismatch"}


@pytest.mark.rule("NTC-002", "NTC-003", "OBS-001")
async def test_every_check_refuses_by_its_name_counts_and_a_signed_lie_is_an_alarm(joined: Joined) -> None:
    height = await archived(joined, validators=1)
    proposer, follower = joined.proposer, joined.followers["follower-1"]
    joined.network.queue.clear()
    good = proposer.service.notice_of(proposer.lives[0].blob)
    assert good is not None
    forged = msgspec.structs.replace(good, signature=bytes(64))
    other = signed(msgspec.structs.replace(good, archived_by=address_of(KEYS[1].public)), KEYS[1])
    cases = [(name, signed(msgspec.structs.replace(good, **changed), KEYS[0])) for name, changed in REFUSALS]
    before = await follower.blobs(height)
    for name, notice in [*cases, ("BadSignature", forged), ("NotProposer", other)]:
        for service, metrics in ((follower.follower, follower.follower.metrics), (proposer.service, proposer.metrics)):
            count = metrics.failures[name]
            with capture_logs() as logs:
                await service.receive([encode_message(notice)])
            assert metrics.failures[name] == count + 1, name
            alarm = [each["log_level"] for each in logs if each["event"] == "notice_conflict"]
            assert alarm == (["error"] if name in CONFLICTS else [])
    assert await follower.blobs(height) == before
    assert follower.follower.metrics.conflicts == len(CONFLICTS)


@pytest.mark.rule("NTC-003")
async def test_another_locator_is_an_alternate_and_the_same_again_is_no_change(joined: Joined) -> None:
    height = await archived(joined, validators=1)
    proposer, follower = joined.proposer, joined.followers["follower-1"]
    await joined.deliver()
    good = proposer.service.notice_of(proposer.lives[0].blob)
    assert good is not None
    other = signed(msgspec.structs.replace(good, locator="s3://elsewhere/item"), KEYS[0])
    for notice in (good, other, other, good):
        await follower.follower.receive([encode_message(notice)])
    (blob,) = await follower.blobs(height)
    assert (blob.locator, blob.alternates) == (good.locator, "s3://elsewhere/item")
    assert follower.follower.metrics.notices == 2


@pytest.mark.rule("NTC-005")
async def test_a_rotated_key_leaves_old_heights_to_its_successor_and_else_an_alarm_names_them(joined: Joined) -> None:
    proposer = joined.proposer
    height = await proposer.add_blobs()
    refused = await proposer.take_over(KEYS[1])
    assert isinstance(refused, Refused)
    assert refused.name == "NotValidator"  # a new owner must already be in the set
    await proposer.take_over(KEYS[0])
    await proposer.add_validators([KEYS[1], KEYS[2]])
    await proposer.kill()
    proposer.signer = KEYS[2]
    await proposer.open()  # a node with a new key, and no takeover was recorded
    await proposer.engine.submit(RemoveValidator(KEYS[0].public))
    await proposer.seal(2)
    await proposer.archiver.run_once()
    assert proposer.lives[0].blob.status is BlobStatus.PENDING
    with capture_logs() as logs:
        await proposer.sender.run_once()
        await proposer.sender.run_once()
    (alarm,) = [each for each in logs if each["event"] == "old_key_pending"]
    assert (alarm["key"], alarm["heights"], alarm["log_level"]) == (KEYS[0].public.hex(), [height], "error")


@pytest.mark.rule("NTC-001", "NTC-004")
async def test_what_is_sent_again_is_equal_to_the_byte_whatever_the_version(joined: Joined) -> None:
    proposer = joined.proposer
    await proposer.engine.submit(AdoptPolicy(archive_policy(notice_version=0), "test"))
    await archived(joined, validators=1)
    await proposer.engine.submit(AdoptPolicy(archive_policy(notice_version=1), "test"))
    (first,) = {message.raw for message in joined.network.queue}
    joined.network.queue.clear()
    proposer.pass_ms(RESEND_MS)
    await proposer.sender.run_once()
    assert {message.raw for message in joined.network.queue} == {first}
    notice = proposer.service.notice_of(proposer.lives[0].blob)
    assert isinstance(notice, ArchiveNotice)
    assert notice.version == 0
    assert len(notice_root(notice)) == 32
