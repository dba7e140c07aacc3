"""Retention and availability at the doors: what is gone says where it is, samples are proved, operators collect."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.api.http.http_node import HttpNode, http_server
from tests.api.rpc.rpc_callers import ALICE, AUDITOR, BOB, OPERATOR, RpcNode
from tests.core.blocks import verify
from tests.core.commands import some_id
from tests.simulation.world import SimulatedClock, SimulatedFiles
from tests.workers.retention.retention_node import RetentionNode, policy

from holdfast.api.http.metrics.requests import HttpMetrics
from holdfast.api.nmt_cache import NmtCache
from holdfast.api.node_access import ANONYMOUS, NodeAccess
from holdfast.cli.result import sample_shares
from holdfast.core.base.errors import Corrupt
from holdfast.core.base.values import AccountId, Amount, Digest
from holdfast.core.escrow.messages import Mint
from holdfast.core.key.model import Role
from holdfast.core.policy_change.messages import AdoptPolicy
from holdfast.core.result import result_digest
from holdfast.core.retention.model import Pass
from holdfast.engine import queries
from holdfast.engine.queries import records
from holdfast.lightclient import result_proof, share_proof
from holdfast.lightclient.da import commitment_of
from holdfast.lightclient.da.commitment import DaCommitment, Sample, why_not_sample
from holdfast.lightclient.headers import VerificationFailed
from holdfast.lightclient.sampling import assess_availability, sample_indexes
from holdfast.workers.retention.collector import Collector
from holdfast.workers.warm_scrubber import WarmScrubber

LARGE = bytes(range(256)) * 10 + b"end"


class RetentionApi:
    """A house with results, and a door to it."""

    def __init__(self, home: RetentionNode) -> None:
        self.retention = home
        self.access = NodeAccess(home.engine, home.engine.submit)
        self.access.blobs, self.access.collector = home.blobs, home.collector
        self.rpc = RpcNode(home.world, self.access)


@pytest.fixture
async def api() -> AsyncIterator[RetentionApi]:
    home = RetentionNode(policy())
    await home.open_with_provider()
    yield RetentionApi(home)
    await home.kill()


@pytest.mark.rule("DA-001")
async def test_a_light_client_samples_a_large_result_without_the_whole(api: RetentionApi) -> None:
    task = await api.retention.resolve(LARGE, seals=1)
    record = await api.rpc.ask(AUDITOR, "cap.getResult", task_id=task.hex())
    commitment = bytes.fromhex(record["da_commitment"])
    assert commitment == commitment_of(b"alice", LARGE)
    pinned = await api.rpc.ask(AUDITOR, "da.getCommitment", task_id=task.hex())
    assert (pinned["length"], pinned["shares"], pinned["share_bytes"]) == (len(LARGE), 6, 512)
    assert pinned["da_commitment"] == commitment.hex()
    asked = sample_indexes(commitment, b"a seed of my own", pinned["shares"], 4)
    got: dict[int, Sample | None] = {}
    for index in asked:
        shown = await api.rpc.ask(AUDITOR, "da.proveShares", task_id=task.hex(), start=index)
        got[index] = share_proof.parse(shown, "the answer")
    found = assess_availability(commitment, pinned["shares"], asked, got)
    assert (found.is_good, found.sampled) == (True, 4)
    assert found.confidence_ppm > 600_000


@pytest.mark.rule("DA-001", "RES-008")
async def test_shares_are_checked_offline_against_the_block_that_resolved_the_result(api: RetentionApi) -> None:
    task = await api.retention.resolve(LARGE, seals=1)
    shown = await api.rpc.ask(AUDITOR, "da.proveShares", task_id=task.hex(), start=4, count=2)
    leaf, sample = result_proof.check(result_proof.parse(shown, "p"), verify), share_proof.parse(shown, "p")
    assert sample is not None
    share_proof.check(leaf, sample)
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
        read = share_proof.parse(forged, "p")
        assert read is not None
        with pytest.raises(VerificationFailed, match="shares are"):
            share_proof.check(leaf, read)
    for path, unreadable in (("length", "5"), ("start", -1), ("shares", "00"), ("nodes", None), ("root", 7)):
        forged = json.loads(json.dumps(shown))
        forged["da"][path] = unreadable
        with pytest.raises(Corrupt):
            share_proof.parse(forged, "p")
    assert share_proof.parse({"da": None}, "p") is None
    assert share_proof.parse([], "p") is None
    with pytest.raises(Corrupt):
        share_proof.parse({"da": {"root": ""}}, "p")


@pytest.mark.rule("DA-001")
async def test_a_small_result_has_no_da_commitment_and_bad_samples_are_refused_by_name(api: RetentionApi) -> None:
    small, large = await api.retention.resolve(b"small"), await api.retention.resolve(LARGE, seals=1)
    name, rule, _ = await api.rpc.refusal(AUDITOR, "da.getCommitment", task_id=small.hex())
    assert (name, rule) == ("NotFound", "DA-001")
    for told in (
        {"start": 6},
        {"start": -1},
        {"start": 5, "count": 2},
        {"start": 0, "count": 0},
        {"start": 0, "count": 17},
    ):
        name, _, _ = await api.rpc.refusal(AUDITOR, "da.proveShares", task_id=large.hex(), **told)
        assert name == "InvalidParams"
    name, _, _ = await api.rpc.refusal(AUDITOR, "da.proveShares", task_id="00" * 32, start=0)
    assert name == "NotFound"


@pytest.mark.rule("DA-001")
async def test_two_callers_with_the_same_bytes_get_each_its_own_shares(api: RetentionApi) -> None:
    """The namespace is the caller's: the tree over the same bytes is another one."""
    home, bob = api.retention, AccountId("bob")
    await home.engine.submit(Mint(some_id(9), bob, Amount(1_000)))
    await home.seal(14)  # money that is final can be reserved
    tasks = [await home.resolve(LARGE), await home.resolve(LARGE, caller=bob)]
    await home.seal()
    for task, caller in zip(tasks, (b"alice", b"bob"), strict=True):
        pinned = await api.rpc.ask(AUDITOR, "da.getCommitment", task_id=task.hex())
        assert pinned["da_commitment"] == commitment_of(caller, LARGE).hex()
        shown = await api.rpc.ask(AUDITOR, "da.proveShares", task_id=task.hex(), start=2)
        leaf, sample = result_proof.check(result_proof.parse(shown, "p"), verify), share_proof.parse(shown, "p")
        assert sample is not None
        share_proof.check(leaf, sample)


@pytest.mark.rule("RET-004", "RES-007")
@pytest.mark.parametrize("days", [1, 2])
async def test_who_asks_for_bytes_that_are_gone_gets_the_pointer(api: RetentionApi, days: int) -> None:
    home = api.retention
    task = await home.resolve(LARGE, seals=13)
    await home.archive_all()
    await home.pass_days(days)
    assert (await api.rpc.ask(ALICE, "da.getCommitment", task_id=task.hex()))["length"] == len(LARGE)
    proof = await api.rpc.ask(ANONYMOUS, "cap.proveResult", task_id=task.hex())
    await home.collector.run_passes()
    api.access.nmt_cache = NmtCache()  # as after a restart
    for method, told in (("da.proveShares", {"start": 0}), ("da.getCommitment", {})):
        said = (await api.rpc.raw(ALICE, method, task_id=task.hex(), **told))["error"]
        assert (said["data"]["name"], said["code"]) == ("ResultPruned", -32008)
        assert commitment_of(b"alice", LARGE).hex() in said["data"]["hint"]
    # The record, or what stays of it, is still shown and still proved.
    record = await api.rpc.ask(AUDITOR, "cap.getResult", task_id=task.hex())
    assert record["da_commitment"] == commitment_of(b"alice", LARGE).hex()
    again = await api.rpc.ask(ANONYMOUS, "cap.proveResult", task_id=task.hex())
    assert (again["leaf"], again["block"]["hash"]) == (proof["leaf"], proof["block"]["hash"])
    assert result_proof.check(result_proof.parse(again, "p"), verify).task_id == task
    assert bool(home.engine.undurable_state.retention_progress.get(Pass.RECORDS)) == (days == 2)


@pytest.mark.rule("RET-003", "SEC-001")
async def test_operators_collect_and_auditors_see_how_far_it_has_come(api: RetentionApi) -> None:
    home, ask = api.retention, api.rpc.ask
    for output in (b"one", b"two", b"one"):
        await home.resolve(output)
    await home.seal(13)
    for visitor in (ANONYMOUS, ALICE, AUDITOR):
        name, rule, _ = await api.rpc.refusal(visitor, "gc.run", tier="hot")
        assert rule == "SEC-001"
    name, _, _ = await api.rpc.refusal(OPERATOR, "gc.run", tier="lukewarm")
    assert name == "InvalidParams"
    dry = await ask(OPERATOR, "gc.run", tier="hot", dry_run=True)
    assert (dry["dropped"], dry["is_dry"], len(home.hot)) == (3, True, 2)
    done = await ask(OPERATOR, "gc.run", tier="hot")
    assert (done["dropped"], done["freed_bytes"], done["is_done"], home.hot) == (3, 9, True, set())
    status = await ask(AUDITOR, "gc.getStatus")
    assert [(each["tier"], each["results"], each["bytes"]) for each in status["passes"]] == [
        ("hot", 3, 9),
        ("warm", 0, 0),
        ("records", 0, 0),
        ("audit", 0, 0),
        ("orphans", 0, 0),
    ]
    api.access.collector = None
    name, _, _ = await api.rpc.refusal(OPERATOR, "gc.run", tier="hot")
    assert name == "Unavailable"


@pytest.mark.rule("RET-003", "OBS-001")
async def test_operators_sweep_orphans_and_all_see_how_many_there_were(api: RetentionApi) -> None:
    home, ask = api.retention, api.rpc.ask
    await home.resolve(LARGE, seals=13)
    home.blobs.held |= {result_digest(raw): raw for raw in (b"one", b"other")}
    await home.pass_days(1)
    dry = await ask(OPERATOR, "gc.run", tier="orphans", dry_run=True)
    assert (dry["looked"], dry["dropped"], dry["freed_bytes"], len(home.blobs.held)) == (3, 2, 8, 3)
    done = await ask(OPERATOR, "gc.run", tier="orphans")
    assert (done["dropped"], done["freed_bytes"], done["deleted"], done["is_done"]) == (2, 8, 2, True)
    assert list(home.blobs.held.values()) == [LARGE]
    (*_, standing) = (await ask(AUDITOR, "gc.getStatus"))["passes"]
    assert (standing["tier"], standing["results"], standing["bytes"]) == ("orphans", 2, 8)
    text = HttpMetrics(api.access, SimulatedClock()).text().decode()
    assert "cap_results_orphans_total 2.0" in text
    assert "cap_results_orphan_bytes_total 8.0" in text
    assert 'tier="orphans"' not in text
    assert 'cap_results_gc_seconds_count{pass="orphans"} 2.0' in text


@pytest.mark.rule("OBS-001", "RET-003")
async def test_a_scrape_and_the_status_say_what_the_tiers_hold_now(api: RetentionApi) -> None:
    home = api.retention
    async with http_server(api.access, home.world) as server:
        node = HttpNode(home.world, home.engine, api.access, server)
        token = await node.token(Role.OPERATOR)

        async def scraped() -> tuple[float, float]:
            async with node.client(token) as client:
                lines = dict(line.rsplit(" ", 1) for line in (await client.get("/metrics")).text.splitlines())
            return float(lines["cap_results_bytes_hot"]), float(lines["cap_results_bytes_warm"])

        assert await scraped() == (0, 0)
        await home.resolve(b"hot")
        assert await scraped() == (3, 3)
        await home.resolve(LARGE, seals=13)
        assert await scraped() == (3, 3 + len(LARGE))
        await home.resolve(b"warmer")
        status = await RpcNode(home.world, api.access).ask(AUDITOR, "gc.getStatus")
        assert (status["bytes_hot"], status["bytes_warm"]) == (9, 9 + len(LARGE))
        home.blobs.held.pop(result_digest(b"hot"))
        await home.collector.run_pass(Pass.HOT)  # what the disk has lost is skipped or restored
        assert (await scraped())[0] == sum(map(len, home.hot))
    again = Collector(home.engine, home.blobs, home.clock, home.archive)
    await again.measure()
    assert again.bytes_hot == sum(map(len, home.hot)) > 0


@pytest.mark.rule("OBS-001")
async def test_prometheus_sees_what_was_deleted_what_is_stored_where_and_how_long_it_took(api: RetentionApi) -> None:
    home = api.retention
    await home.resolve(b"small")
    await home.resolve(LARGE, seals=13)
    tally = HttpMetrics(api.access, SimulatedClock())
    await home.collector.run_passes()
    await home.resolve(b"hot")
    await home.collector.run_passes()
    text = tally.text().decode()
    assert "holdfast_warm" not in text  # a node that does not scrub does not say that all is well
    assert 'cap_results_pruned_total{tier="hot"} 2.0' in text
    assert "cap_results_bytes_hot 3.0" in text
    assert f"cap_results_bytes_warm {float(len(LARGE) + 8)}" in text
    assert "cap_results_bytes_cold 0.0" in text
    api.access.scrubber = scrubber = WarmScrubber(home.engine, home.blobs, SimulatedFiles(), home.clock, 7)
    home.blobs.held |= {result_digest(LARGE): b"rotten", result_digest(b"hot"): b"bad"}
    await scrubber.run_once()
    text = tally.text().decode()
    for line in ("damaged 1.0", f"scrubbed_bytes_total {float(8 + len(b'rotten'))}", "repaired_total 1.0"):
        assert f"holdfast_warm_{line}" in text
    assert f"holdfast_warm_scrub_passed_seconds {home.clock.wall_ms() / 1_000}" in text
    home.blobs.held[result_digest(LARGE)] = LARGE
    await home.archive_all()
    await home.pass_days(1)
    await home.collector.run_passes()
    text = tally.text().decode()
    assert 'cap_results_pruned_total{tier="warm"} 2.0' in text
    assert f"cap_results_bytes_cold {float(len(LARGE) + 5)}" in text
    assert 'cap_results_gc_seconds_count{pass="hot"} 3.0' in text
    assert 'cap_results_gc_seconds_bucket{le="0.05",pass="warm"}' in text


async def test_the_nmt_cache_keeps_the_trees_asked_for_last() -> None:
    shelf, made = NmtCache(bytes_max=2_000), list[Digest]()
    for number in range(4):
        made.append((await shelf.put(bytes(8), bytes([number]) * 900)).da_commitment.digest)
        shelf.find(made[0])
    assert [shelf.find(each) is not None for each in made] == [True, False, False, True]
    large = await shelf.put(bytes(8), bytes(5_000))
    assert shelf.find(large.da_commitment.digest) is large
    sample = large.sample(2, 1)
    assert why_not_sample(DaCommitment(bytes(8), large.tree.root, 5_000).digest, sample) is None


@pytest.mark.rule("DA-001", "RES-008")
async def test_a_sampling_client_is_not_fobbed_off_with_another_result(
    api: RetentionApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, there = await api.retention.resolve(LARGE + b"!"), await api.retention.resolve(LARGE, seals=1)

    class OtherResult:
        """A node that has lost one result and shows another instead."""

        async def call(self, method: str, **params: object) -> object:
            return await api.rpc.ask(AUDITOR, method, **params | {"task_id": there.hex()})

    monkeypatch.setattr("holdfast.cli.result.check_signature", verify)
    with pytest.raises(VerificationFailed, match="of another task"):
        await sample_shares(OtherResult(), gone.hex(), 3, b"seed", frozenset())


@pytest.mark.rule("RES-005", "RET-002")
async def test_a_result_of_which_only_a_tombstone_is_left_is_still_its_callers_alone(
    api: RetentionApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, node = api.retention, api.rpc
    task = await home.resolve(LARGE, seals=13)
    await home.archive_all()
    await home.pass_days(3)
    await home.collector.run_passes()
    await home.engine.wait_tables()
    home.world.tables.rows["job"].clear()  # buried long before
    assert home.world.tables.rows["result"] == {}
    found = await node.ask(AUDITOR, "cap.getResult", task_id=task.hex())
    assert (found["caller"], found["kind"], found["method"]) == ("alice", "AI", "attested")
    assert found["charged"] > 0
    assert (await node.refusal(BOB, "cap.consumeResult", task_id=task.hex()))[0] == "Forbidden"
    with monkeypatch.context() as without_history:
        without_history.setattr(home.engine.journal, "batch_of", nothing)
        assert (await node.refusal(ALICE, "cap.consumeResult", task_id=task.hex()))[0] == "NotFound"
        slim = await node.ask(AUDITOR, "cap.getResult", task_id=task.hex())
        assert not slim.keys() & {"charged", "payee", "provider_id", "method", "caller"}  # not known, not 0
        assert (slim["expires_at"], slim["kind"], slim["result_digest"]) == (None, None, found["result_digest"])
    used = await node.ask(ALICE, "cap.consumeResult", task_id=task.hex(), nonce=1)
    assert not used["is_repeat"]


@pytest.mark.rule("RES-008", "RET-002")
async def test_a_result_is_proved_for_ever_also_when_its_audit_window_has_ended(
    api: RetentionApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, node = api.retention, api.rpc
    tasks = [await home.resolve(LARGE + bytes([at]), seals=at) for at in (0, 0, 1, 13)]
    proofs = [await node.ask(AUDITOR, "cap.proveResult", task_id=task.hex()) for task in tasks]
    await home.archive_all()
    policy = home.engine.policy
    ends = replace(policy, result=replace(policy.result, audit_window_days=policy.result.retain_cold_days))
    await home.engine.submit(AdoptPolicy(ends))
    await home.pass_days(400)
    for _ in range(2):
        await home.collector.run_passes()
        await home.engine.wait_tables()
    assert (home.world.tables.rows["result"], home.world.tables.rows["tombstone"]) == ({}, {})
    monkeypatch.setattr(home.engine.journal, "batch_of", nothing)
    for task, proof in zip(tasks, proofs, strict=True):
        assert await node.ask(AUDITOR, "cap.proveResult", task_id=task.hex()) == proof
    assert (await node.refusal(AUDITOR, "cap.proveResult", task_id="00" * 32))[0] == "NotFound"


async def nothing(_: object) -> None:
    """History that was deleted from the archive."""


@pytest.mark.rule("RES-008")
async def test_the_leaves_of_a_block_are_read_together_however_many_there_are(
    api: RetentionApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "PAGE_MAX", 8)
    home, tables, asked = api.retention, api.retention.engine.tables, list[str]()
    tasks = [await home.resolve(b"%d" % number) for number in range(20)]
    await home.seal(13)
    await home.engine.wait_tables()
    get, page = tables.get, tables.page

    async def counted_get(table: str, key: object) -> Any:
        asked.append(table)
        return await get(table, key)

    async def counted_page(table: str, *told: Any, **options: Any) -> Any:
        asked.append(table)
        return await page(table, *told, **options)

    monkeypatch.setattr(tables, "get", counted_get)
    monkeypatch.setattr(tables, "page", counted_page)
    for task in tasks[:1] + tasks[-1:]:
        asked.clear()
        shown = await api.rpc.ask(ANONYMOUS, "cap.proveResult", task_id=task.hex())
        assert result_proof.check(result_proof.parse(shown, "p"), verify).task_id == task
        assert asked.count("leaf") == 3


@pytest.mark.rule("RES-008")
async def test_a_leaf_that_is_missing_is_named(api: RetentionApi) -> None:
    await api.retention.resolve(b"one")
    with pytest.raises(Corrupt, match="leaf 1 of the log is missing"):
        await queries.leaves(api.retention.engine, 0, 2)
