"""Retention and availability at the doors: what is gone says where it is, samples are proved, operators collect."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.core.blocks import verify
from tests.core.books import some_id
from tests.doors.visitors import ALICE, AUDITOR, BOB, OPERATOR, Node
from tests.duties.retained import House, policy
from tests.simulated.world import SimulatedClock

from holdfast.cli.asking import Asked
from holdfast.cli.sampling import sampled
from holdfast.core.da import commitment_of
from holdfast.core.da.commit import Pinned, Sample, why_not_sample
from holdfast.core.da.sample import drawn, judge
from holdfast.core.escrow.acts import Mint
from holdfast.core.refusal import Corrupt
from holdfast.core.result import result_digest
from holdfast.core.retention.books import Pass
from holdfast.core.values import AccountId, Amount, Digest
from holdfast.doors.desk import NOBODY, Desk
from holdfast.doors.http.tally import Tally
from holdfast.doors.shelf import Shelf
from holdfast.engine import read, resultproof, shareproof
from holdfast.engine.headers import Untrue

LARGE = bytes(range(256)) * 10 + b"end"


class Doors:
    """A house with results, and a door to it."""

    def __init__(self, home: House) -> None:
        self.home = home
        self.desk = Desk(home.engine, home.engine.submit)
        self.desk.blobs, self.desk.collector = home.blobs, home.collector
        self.node = Node(home.world, self.desk)


@pytest.fixture
async def doors() -> AsyncIterator[Doors]:
    home = House(policy(serve_bytes=True))
    await home.furnished()
    yield Doors(home)
    await home.killed()


@pytest.mark.rule("DA-001")
async def test_a_light_client_samples_a_large_result_without_the_whole(doors: Doors) -> None:
    task = await doors.home.resolve(LARGE, seals=1)
    record = await doors.node.ask(NOBODY, "cap.getResult", task_id=task.hex())
    commitment = bytes.fromhex(record["da_commitment"])
    assert commitment == commitment_of(b"alice", LARGE)
    pinned = await doors.node.ask(NOBODY, "da.getPinned", task_id=task.hex())
    assert (pinned["length"], pinned["shares"], pinned["share_bytes"]) == (len(LARGE), 6, 512)
    assert pinned["da_commitment"] == commitment.hex()
    asked = drawn(commitment, b"a seed of my own", pinned["shares"], 4)
    got: dict[int, Sample | None] = {}
    for index in asked:
        shown = await doors.node.ask(NOBODY, "da.proveShares", task_id=task.hex(), start=index)
        got[index] = shareproof.read(shown, "the answer")
    found = judge(commitment, pinned["shares"], asked, got)
    assert (found.is_good, found.sampled) == (True, 4)
    assert found.confidence_ppm > 600_000


@pytest.mark.rule("DA-001", "RES-008")
async def test_shares_are_checked_offline_against_the_block_that_resolved_the_result(doors: Doors) -> None:
    task = await doors.home.resolve(LARGE, seals=1)
    shown = await doors.node.ask(NOBODY, "da.proveShares", task_id=task.hex(), start=4, count=2)
    leaf, sample = resultproof.check(resultproof.read(shown, "p"), verify), shareproof.read(shown, "p")
    assert sample is not None
    shareproof.check(leaf, sample)
    assert b"".join(sample.shares).rstrip(b"\0") == LARGE[4 * 512 :]
    for path, wrong in (
        ("length", len(LARGE) - 1),
        ("length", len(LARGE) + 512),
        ("start", 3),
        ("namespace", "00" * 8),
        ("root", "00" * 48),
        ("shares", shown["da"]["shares"][:1]),
        ("shares", shown["da"]["shares"][::-1]),
        ("nodes", shown["da"]["nodes"][:-1]),
    ):
        forged = json.loads(json.dumps(shown))
        forged["da"][path] = wrong
        read = shareproof.read(forged, "p")
        assert read is not None
        with pytest.raises(Untrue, match="shares are"):
            shareproof.check(leaf, read)
    for path, unreadable in (("length", "5"), ("start", -1), ("shares", "00"), ("nodes", None), ("root", 7)):
        forged = json.loads(json.dumps(shown))
        forged["da"][path] = unreadable
        with pytest.raises(Corrupt):
            shareproof.read(forged, "p")
    assert shareproof.read({"da": None}, "p") is None
    assert shareproof.read([], "p") is None
    with pytest.raises(Corrupt):
        shareproof.read({"da": {"root": ""}}, "p")


@pytest.mark.rule("DA-001")
async def test_a_small_result_is_not_pinned_and_bad_samples_are_refused_by_name(doors: Doors) -> None:
    small, large = await doors.home.resolve(b"small"), await doors.home.resolve(LARGE, seals=1)
    name, rule, _ = await doors.node.no(NOBODY, "da.getPinned", task_id=small.hex())
    assert (name, rule) == ("NotFound", "DA-001")
    for told in (
        {"start": 6},
        {"start": -1},
        {"start": 5, "count": 2},
        {"start": 0, "count": 0},
        {"start": 0, "count": 17},
    ):
        name, _, _ = await doors.node.no(NOBODY, "da.proveShares", task_id=large.hex(), **told)
        assert name == "InvalidParams"
    name, _, _ = await doors.node.no(NOBODY, "da.proveShares", task_id="00" * 32, start=0)
    assert name == "NotFound"


@pytest.mark.rule("DA-001")
async def test_two_callers_with_the_same_bytes_get_each_its_own_shares(doors: Doors) -> None:
    """The namespace is the caller's: the tree over the same bytes is another one."""
    home, bob = doors.home, AccountId("bob")
    await home.engine.submit(Mint(some_id(9), bob, Amount(1_000)))
    await home.seal(14)  # money that is final can be reserved
    tasks = [await home.resolve(LARGE), await home.resolve(LARGE, caller=bob)]
    await home.seal()
    for task, caller in zip(tasks, (b"alice", b"bob"), strict=True):
        pinned = await doors.node.ask(NOBODY, "da.getPinned", task_id=task.hex())
        assert pinned["da_commitment"] == commitment_of(caller, LARGE).hex()
        shown = await doors.node.ask(NOBODY, "da.proveShares", task_id=task.hex(), start=2)
        leaf, sample = resultproof.check(resultproof.read(shown, "p"), verify), shareproof.read(shown, "p")
        assert sample is not None
        shareproof.check(leaf, sample)


@pytest.mark.rule("RET-004", "RES-007")
@pytest.mark.parametrize("days", [1, 2])
async def test_who_asks_for_bytes_that_are_gone_gets_the_pointer(doors: Doors, days: int) -> None:
    home = doors.home
    task = await home.resolve(LARGE, seals=13)
    await home.archive_all()
    await home.pass_days(days)
    assert bytes.fromhex((await doors.node.ask(ALICE, "cap.getResultBytes", task_id=task.hex()))["bytes"]) == LARGE
    proof = await doors.node.ask(NOBODY, "cap.proveResult", task_id=task.hex())
    await home.collector.look()
    for method, told in (("cap.getResultBytes", {}), ("da.proveShares", {"start": 0}), ("da.getPinned", {})):
        said = (await doors.node.raw(ALICE, method, task_id=task.hex(), **told))["error"]
        assert (said["data"]["name"], said["code"]) == ("ResultPruned", -32008)
        assert commitment_of(b"alice", LARGE).hex() in said["data"]["hint"]
    # The record, or what stays of it, is still shown and still proved.
    record = await doors.node.ask(NOBODY, "cap.getResult", task_id=task.hex())
    assert record["da_commitment"] == commitment_of(b"alice", LARGE).hex()
    again = await doors.node.ask(NOBODY, "cap.proveResult", task_id=task.hex())
    assert (again["leaf"], again["block"]["hash"]) == (proof["leaf"], proof["block"]["hash"])
    assert resultproof.check(resultproof.read(again, "p"), verify).task_id == task
    assert bool(home.engine.state.passes.get(Pass.INDEX)) == (days == 2)


@pytest.mark.rule("RET-003", "SEC-001")
async def test_operators_collect_and_auditors_see_how_far_it_has_come(doors: Doors) -> None:
    home, ask = doors.home, doors.node.ask
    for output in (b"one", b"two", b"one"):
        await home.resolve(output)
    await home.seal(13)
    for visitor in (NOBODY, ALICE, AUDITOR):
        name, rule, _ = await doors.node.no(visitor, "gc.run", tier="hot")
        assert rule == "SEC-001"
    name, _, _ = await doors.node.no(OPERATOR, "gc.run", tier="lukewarm")
    assert name == "InvalidParams"
    dry = await ask(OPERATOR, "gc.run", tier="hot", dry_run=True)
    assert (dry["dropped"], dry["is_dry"], len(home.hot)) == (3, True, 2)
    done = await ask(OPERATOR, "gc.run", tier="hot")
    assert (done["dropped"], done["freed_bytes"], done["is_done"], home.hot) == (3, 9, True, set())
    status = await ask(AUDITOR, "gc.status")
    assert [(each["tier"], each["results"], each["bytes"]) for each in status["passes"]] == [
        ("hot", 3, 9),
        ("warm", 0, 0),
        ("index", 0, 0),
        ("audit", 0, 0),
        ("stray", 0, 0),
    ]
    doors.desk.collector = None
    name, _, _ = await doors.node.no(OPERATOR, "gc.run", tier="hot")
    assert name == "Unavailable"


@pytest.mark.rule("RET-003", "OBS-001")
async def test_operators_sweep_strays_and_all_see_how_many_there_were(doors: Doors) -> None:
    home, ask = doors.home, doors.node.ask
    await home.resolve(LARGE, seals=13)
    home.blobs.held |= {result_digest(raw): raw for raw in (b"one", b"other")}
    await home.pass_days(1)
    dry = await ask(OPERATOR, "gc.run", tier="stray", dry_run=True)
    assert (dry["looked"], dry["dropped"], dry["freed_bytes"], len(home.blobs.held)) == (3, 2, 8, 3)
    done = await ask(OPERATOR, "gc.run", tier="stray")
    assert (done["dropped"], done["freed_bytes"], done["deleted"], done["is_done"]) == (2, 8, 2, True)
    assert list(home.blobs.held.values()) == [LARGE]
    (*_, standing) = (await ask(AUDITOR, "gc.status"))["passes"]
    assert (standing["tier"], standing["results"], standing["bytes"]) == ("stray", 2, 8)
    text = Tally(doors.desk, SimulatedClock()).text().decode()
    assert "cap_results_strays_total 2.0" in text
    assert "cap_results_stray_bytes_total 8.0" in text
    assert 'tier="stray"' not in text
    assert 'cap_results_gc_seconds_count{pass="stray"} 2.0' in text


@pytest.mark.rule("OBS-001")
async def test_prometheus_sees_what_was_let_go_what_rests_where_and_how_long_it_took(doors: Doors) -> None:
    home = doors.home
    await home.resolve(b"small")
    await home.resolve(LARGE, seals=13)
    tally = Tally(doors.desk, SimulatedClock())
    await home.collector.look()
    await home.resolve(b"hot")
    await home.collector.look()
    text = tally.text().decode()
    assert 'cap_results_pruned_total{tier="hot"} 2.0' in text
    assert "cap_results_bytes_hot 3.0" in text
    assert f"cap_results_bytes_warm {float(len(LARGE) + 8)}" in text
    assert "cap_results_bytes_cold 0.0" in text
    await home.archive_all()
    await home.pass_days(1)
    await home.collector.look()
    text = tally.text().decode()
    assert 'cap_results_pruned_total{tier="warm"} 2.0' in text
    assert f"cap_results_bytes_cold {float(len(LARGE) + 5)}" in text
    assert 'cap_results_gc_seconds_count{pass="hot"} 3.0' in text
    assert 'cap_results_gc_seconds_bucket{le="0.05",pass="warm"}' in text


async def test_a_shelf_keeps_the_trees_asked_for_last() -> None:
    shelf, made = Shelf(bytes_max=2_000), list[Digest]()
    for number in range(4):
        made.append((await shelf.put(bytes(8), bytes([number]) * 900)).pinned.commitment)
        shelf.find(made[0])
    assert [shelf.find(each) is not None for each in made] == [True, False, False, True]
    large = await shelf.put(bytes(8), bytes(5_000))
    assert shelf.find(large.pinned.commitment) is large
    sample = large.sample(2, 1)
    assert why_not_sample(Pinned(bytes(8), large.tree.root, 5_000).commitment, sample) is None


@pytest.mark.rule("DA-001", "RES-008")
async def test_a_sampling_client_is_not_fobbed_off_with_another_result(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, there = await doors.home.resolve(LARGE + b"!"), await doors.home.resolve(LARGE, seals=1)

    async def call(method: str, **told: object) -> object:
        """A node that has lost one result and shows another instead."""
        return await doors.node.ask(NOBODY, method, **told | {"task_id": there.hex()})

    monkeypatch.setattr("holdfast.cli.sampling.check_signature", verify)
    with pytest.raises(Untrue, match="of another task"):
        await sampled(Asked(call), gone.hex(), 3, b"seed", frozenset())


@pytest.mark.rule("RES-005", "RET-002")
async def test_a_result_of_which_only_a_tombstone_is_left_is_still_its_callers_alone(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, node = doors.home, doors.node
    task = await home.resolve(LARGE, seals=13)
    await home.archive_all()
    await home.pass_days(3)
    await home.collector.look()
    await home.engine.projector.drain()
    home.world.tables.rows["job"].clear()  # buried long before
    assert home.world.tables.rows["result"] == {}
    found = await node.ask(NOBODY, "cap.getResult", task_id=task.hex())
    assert (found["caller"], found["kind"], found["reasons"]) == ("alice", "AI", "vacuumed")
    assert (await node.no(BOB, "cap.consumeResult", task_id=task.hex()))[0] == "Forbidden"
    with monkeypatch.context() as without_history:
        without_history.setattr(home.engine.journal, "batch_of", nothing)
        assert (await node.no(ALICE, "cap.consumeResult", task_id=task.hex()))[0] == "NotFound"
    used = await node.ask(ALICE, "cap.consumeResult", task_id=task.hex(), nonce=1)
    assert not used["is_repeat"]


async def nothing(_: object) -> None:
    """History that was deleted from the archive."""


@pytest.mark.rule("RES-008")
async def test_the_leaves_of_a_block_are_read_together_however_many_there_are(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "PAGE_MAX", 8)
    home, tables, asked = doors.home, doors.home.engine.tables, list[str]()
    tasks = [await home.resolve(b"%d" % number) for number in range(20)]
    await home.seal(13)
    await home.engine.projector.drain()
    get, page = tables.get, tables.page

    async def counted_get(table: str, key: object) -> Any:
        asked.append(table)
        return await get(table, key)

    async def counted_page(table: str, *told: Any) -> Any:
        asked.append(table)
        return await page(table, *told)

    monkeypatch.setattr(tables, "get", counted_get)
    monkeypatch.setattr(tables, "page", counted_page)
    for task in tasks[:1] + tasks[-1:]:
        asked.clear()
        shown = await doors.node.ask(NOBODY, "cap.proveResult", task_id=task.hex())
        assert resultproof.check(resultproof.read(shown, "p"), verify).task_id == task
        assert asked.count("leaf") == 3


@pytest.mark.rule("RES-008")
async def test_a_leaf_that_is_missing_is_named(doors: Doors) -> None:
    await doors.home.resolve(b"one")
    with pytest.raises(Corrupt, match="leaf 1 of the log is missing"):
        await read.leaves(doors.home.engine, 0, 2)
