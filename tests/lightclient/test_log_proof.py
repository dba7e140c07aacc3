"""Between two heads results were only added: proved by a node, checked with two signed headers, also after a reorg."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.core.base.merkle_proofs import prove_inclusion
from tests.core.blocks import PROPOSER, SEAL, verify
from tests.core.commands import some_id
from tests.core.core_driver import ALICE, YEAR_MS, public
from tests.simulation.world import DEVELOPMENT, World

from holdfast.api.rpc.params import to_json
from holdfast.core.base.canonical import canonical
from holdfast.core.base.errors import Corrupt
from holdfast.core.base.merkle import root
from holdfast.core.base.values import AccountId, Amount, ChainId, Digest, Height, Tier
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.chain.model import signed_of
from holdfast.core.escrow.messages import Mint
from holdfast.core.match.messages import Match
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.provider.messages import Heartbeat, Register, Stake
from holdfast.core.provider.model import provider_id
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue
from holdfast.core.result import result_digest
from holdfast.engine import proofs, queries
from holdfast.engine.loop import Engine
from holdfast.lightclient import log_proof
from holdfast.lightclient.headers import VerificationFailed

pytestmark = pytest.mark.rule("RES-008", "CHN-001")
ID = provider_id(public(1))


async def worked(world: World, *results_per_block: int) -> Engine:
    """A node whose blocks hold the given numbers of results."""
    engine = await world.started()
    await engine.submit(Mint(some_id(1), ALICE, Amount(100_000)))
    await engine.submit(Mint(some_id(2), AccountId("oak"), Amount(10_000)))
    told = ("oak", AccountId("oak"), canonical({"AI": {"models": ["echo"]}}), "eu", 2, 16)
    await engine.submit(Register(public(1), *told, world.clock.wall + YEAR_MS))
    await engine.submit(Stake(ID, Amount(10_000), some_id(3)))
    await engine.submit(Heartbeat(ID, 16))
    for block, results in enumerate(results_per_block):
        for number in range(results):
            await finished(engine, 100 * block + number)
        await engine.submit(SEAL)
    return engine


async def finished(engine: Engine, nonce: int) -> None:
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": f"{nonce}"}}
    command = build_enqueue(engine.policy, ALICE, Tier.FREE, payload, 100, nonce)
    assert isinstance(command, Enqueue)
    await engine.submit(command)
    await engine.submit(Match())
    lease = next(reversed(engine.undurable_state.leases.by_id.values()))
    body = body_of(lease.job_id, lease.id, ID, result_digest(b"%d" % nonce), 1, {})
    await engine.submit(SubmitCompletion(lease.id, ID, Envelope(1, "attested", body, b"")))
    await engine.submit(RecordVerdict(lease.id, is_good=True))


async def shown(engine: Engine, first: int, second: int, known: dict[int, Digest] | None = None) -> dict[str, object]:
    one, two = await queries.block(engine, Height(first)), await queries.block(engine, Height(second))
    assert one is not None
    assert two is not None
    path = await proofs.prove_log_consistency(engine, one, two, {} if known is None else known)
    shown: dict[str, object] = to_json({"chain_id": 1337, "first": one, "second": two, "path": path})
    return shown


def checked(values: object, *keys: bytes) -> None:
    log_proof.check(*log_proof.parse(values, "the proof"), verify, keys)


async def test_the_log_of_every_block_is_the_beginning_of_every_later_one() -> None:
    engine = await worked(World(), 1, 0, 3, 2, 5)
    for first in range(1, 6):
        for second in range(first, 6):
            checked(await shown(engine, first, second), PROPOSER)
    await engine.wait_tables()
    checked(await shown(engine, 2, 5), PROPOSER)  # and from the tables
    await engine.stop()


async def test_after_a_reorg_the_leaves_are_those_of_the_active_chain() -> None:
    world = World()
    engine = await worked(world, 1, 2, 3)
    await engine.wait_tables()
    await engine.submit(RollBackBlocks(Height(1)))
    await engine.submit(SEAL)
    await finished(engine, 999)
    await engine.submit(SEAL)
    checked(await shown(engine, 1, 3), PROPOSER)
    assert engine.undurable_state.chain.head.log_size == 7
    await engine.stop()


@pytest.mark.rule("SEC-002")
async def test_slices_of_the_log_that_are_final_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "SLICE", 2)
    read, known = list[tuple[int, int]](), dict[int, Digest]()

    async def leaves(source: queries.ReadSource, first: int, count: int) -> list[bytes]:
        read.append((first, count))
        return await stored_leaves(source, first, count)

    stored_leaves = queries.leaves
    monkeypatch.setattr(queries, "leaves", leaves)
    for depth in (0, 12):
        chain = msgspec.structs.replace(DEVELOPMENT.chain, finality_depth=depth)
        engine = await worked(World(msgspec.structs.replace(DEVELOPMENT, chain=chain)), 1, 0, 3, 2, 5)
        known.clear()
        checked(await shown(engine, 3, 5, known), PROPOSER)
        assert known.keys() == ({4, 6, 8} if depth == 0 else set())  # the first four are the first root itself
        for first in range(1, 6):
            checked(await shown(engine, first, 5, known), PROPOSER)
        read.clear()
        checked(await shown(engine, 3, 5, known), PROPOSER)
        assert read == ([(10, 1)] if depth == 0 else [(4, 2), (6, 2), (8, 2), (10, 1)])
        await engine.stop()


@pytest.mark.rule("SEC-002")
async def test_others_are_served_between_two_slices_of_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "SLICE", 4)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    leaves = [b"%d" % number for number in range(64)]
    assert await proofs.root_in_slices(leaves) == root(leaves)
    assert turns >= len(leaves) // 4
    turns = 0
    assert await proofs.inclusion_path(leaves, 21) == prove_inclusion(leaves, 21)
    assert turns >= 63 // 4
    counting.cancel()


async def test_what_was_altered_is_named() -> None:
    engine = await worked(World(), 2, 3)
    good = await shown(engine, 1, 2)
    other = await shown(engine, 1, 1)
    with pytest.raises(VerificationFailed, match="not the beginning"):
        checked(good | {"path": other["path"]})
    with pytest.raises(VerificationFailed, match="which is not one of the given keys"):
        checked(good, b"k" * 32)
    with pytest.raises(VerificationFailed, match="does not match its hash"):
        checked(good | {"second": dict(good["second"]) | {"log_size": 4}})  # type: ignore[call-overload]
    with pytest.raises(VerificationFailed, match="not signed"):
        checked(good | {"first": dict(good["first"]) | {"signature": "00" * 64}})  # type: ignore[call-overload]
    wrongs: list[dict[str, object]] = [{"chain_id": "1"}, {"path": 1}, {"first": []}]
    for wrong in wrongs:
        with pytest.raises(Corrupt, match="cannot be read"):
            checked(good | wrong)
    head = engine.undurable_state.chain.head
    assert signed_of(head, ChainId(1337)).header.log_size == 5
    await engine.stop()
