"""Policy: the knobs, their defaults, and that everything wrong with them is said at once."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import msgspec
import pytest

from holdfast.core.base.values import Network
from holdfast.core.policy import ChainPolicy, Policy, PriorityPolicy, ResultPolicy
from holdfast.core.policy.limits import OPTIONAL, ORDERED, RANGES, SettingFault, check_policy

DEVELOPMENT = Policy.for_network(Network.DEVELOPMENT)


def with_settings(policy: Policy, **settings: Any) -> Policy:
    """The policy with some knobs set, `lease__ai_ms=1` for `lease.ai_ms`."""
    for path, value in settings.items():
        group, _, name = path.rpartition("__")
        if group:
            part = msgspec.structs.replace(getattr(policy, group), **{name: value})
            policy = msgspec.structs.replace(policy, **{group: part})
        else:
            policy = msgspec.structs.replace(policy, **{name: value})
    return policy


def set_at(policy: Policy, path: str, value: object) -> Policy:
    return with_settings(policy, **{path.replace(".", "__"): value})


def paths(found: list[SettingFault]) -> list[str]:
    return [fault.path for fault in found]


def integer_settings() -> list[str]:
    groups = msgspec.structs.fields(Policy)
    nested = {
        group.name: msgspec.structs.fields(group.default)
        for group in groups
        if hasattr(group.default, "__struct_fields__")
    }
    inside = [
        f"{name}.{knob.name}"
        for name, knobs in nested.items()
        for knob in knobs
        if getattr(knob.type, "__origin__", knob.type) in (int, int | None)
    ]
    return ["chain_id", *inside]


@pytest.mark.parametrize("network", Network)
def test_the_defaults_of_every_network_are_a_good_policy(network: Network) -> None:
    assert check_policy(Policy.for_network(network)) == []


def test_the_bare_defaults_are_a_production_network() -> None:
    assert Policy() == Policy.for_network(Network.PRODUCTION)
    assert (Policy().chain.finality_depth, Policy().result.max_inline_bytes) == (0, 0)


def test_a_development_network_keeps_small_results_inline_and_can_roll_back() -> None:
    assert (DEVELOPMENT.chain.finality_depth, DEVELOPMENT.result.max_inline_bytes) == (12, 65_536)


def test_every_integer_setting_has_exactly_one_range_in_the_order_of_the_settings() -> None:
    assert [path for path, _, _ in RANGES] == integer_settings()


@pytest.mark.parametrize(("path", "low", "high"), RANGES)
def test_a_setting_just_outside_its_range_is_named_and_at_its_ends_is_not_out_of_range(
    path: str, low: int, high: int
) -> None:
    for value, is_bad in ((low - 1, True), (low, False), (high, False), (high + 1, True)):
        outside = [
            fault for fault in check_policy(set_at(DEVELOPMENT, path, value)) if "is not within" in fault.message
        ]
        assert paths(outside) == ([path] if is_bad else []), value


@pytest.mark.parametrize("wrong", [True, 1.5, "7", None])
def test_what_is_not_an_integer_is_a_fault_and_never_a_crash(wrong: object) -> None:
    for path, _, _ in RANGES:
        if not (wrong is None and path in OPTIONAL):
            assert path in paths(check_policy(set_at(DEVELOPMENT, path, wrong)))


@pytest.mark.parametrize(("lesser", "greater", "rule", "why"), ORDERED)
def test_a_setting_above_the_one_that_bounds_it_is_named_with_its_rule(
    lesser: str, greater: str, rule: str, why: str
) -> None:
    bound = attrgetter(lesser)(DEVELOPMENT)
    low, high = {path: (low, high) for path, low, high in RANGES}[greater]
    at, below = (set_at(DEVELOPMENT, greater, value) for value in (bound, bound - 1))
    says = f"{bound} is above {greater} = {bound - 1}: {why}"
    assert lesser not in paths(check_policy(at))
    if low <= bound - 1 <= high:
        assert (lesser, rule, says) in [(fault.path, fault.rule, fault.message) for fault in check_policy(below)]


@pytest.mark.rule("CHN-005")
def test_results_of_a_block_that_can_be_rolled_back_must_stay_hot() -> None:
    for hot, is_bad in ((11, True), (12, False), (13, False)):
        found = check_policy(with_settings(DEVELOPMENT, result__retain_hot_blocks=hot))
        assert [(fault.path, fault.rule) for fault in found] == [("chain.finality_depth", "CHN-005")] * is_bad


@pytest.mark.rule("CHN-005")
@pytest.mark.parametrize(
    ("path", "unit_ms"),
    [("ttl.tombstone_ms", 1), ("result.audit_window_days", 86_400_000)],
)
def test_nothing_is_deleted_by_time_before_the_slowest_block_is_final(path: str, unit_ms: int) -> None:
    # 2 880 blocks of an idle minute each are exactly two days
    deep = with_settings(
        DEVELOPMENT, chain__finality_depth=2_880, result__retain_hot_blocks=2_880, result__retain_cold_days=0
    )
    deep = with_settings(deep, result__retain_warm_days=2, result__retain_cold_days=2)
    enough = 2 * 86_400_000 // unit_ms
    for kept, is_bad in ((enough - 1, True), (enough, False), (enough + 1, False)):
        found = [fault for fault in check_policy(set_at(deep, path, kept)) if fault.rule == "CHN-005"]
        assert paths(found) == [path] * is_bad
        assert not found or f"set it to {enough} " in found[0].hint


@pytest.mark.rule("CHN-005", "RET-002")
def test_warm_bytes_may_go_at_once_since_they_never_go_before_the_hot_ones() -> None:
    assert check_policy(with_settings(DEVELOPMENT, result__retain_warm_days=0)) == []


@pytest.mark.rule("CHN-005")
def test_where_every_block_is_final_at_once_nothing_need_be_kept_for_a_reorg() -> None:
    policy = with_settings(Policy(), result__retain_hot_blocks=0, result__retain_warm_days=0, ttl__tombstone_ms=1)
    policy = with_settings(policy, provider__unstake_cooldown_ms=0)
    assert check_policy(policy) == []


def test_weights_that_are_all_zero_are_refused_and_one_is_enough() -> None:
    none = with_settings(DEVELOPMENT, priority__w_fee=0, priority__w_age=0, priority__w_size=0, priority__w_tier=0)
    assert paths(check_policy(none)) == ["priority"]
    assert check_policy(with_settings(none, priority__w_tier=1)) == []


@pytest.mark.parametrize(("length_ms", "jobs", "is_bad"), [(0, 0, False), (1, 0, True), (0, 1, True), (1, 1, False)])
def test_a_requester_window_has_both_a_length_and_a_number(length_ms: int, jobs: int, is_bad: bool) -> None:
    policy = with_settings(DEVELOPMENT, match__requester_window_ms=length_ms, match__requester_window_jobs_max=jobs)
    assert paths(check_policy(policy)) == ["match.requester_window_ms"] * is_bad


@pytest.mark.rule("SEC-001")
def test_all_faults_are_said_at_once_each_with_a_hint() -> None:
    policy = with_settings(
        DEVELOPMENT,
        chain_id=-1,
        chain__finality_depth=2_000,
        lease__renew_by_per_mille=1_000,
        retry__cap_ms=1_999,
        match__requester_window_ms=1,
    )
    found = check_policy(policy)
    assert paths(found) == [
        "chain_id",
        "lease.renew_by_per_mille",
        "chain.finality_depth",
        "retry.base_ai_ms",
        "retry.base_quantum_ms",
        "match.requester_window_ms",
    ]
    assert all(fault.message and fault.hint for fault in found)


def test_a_value_that_is_wrong_itself_is_not_compared_with_others() -> None:
    policy = with_settings(DEVELOPMENT, retry__cap_ms=0, chain__idle_block_ms=0)
    assert paths(check_policy(policy)) == ["chain.idle_block_ms", "retry.cap_ms"]


def test_a_policy_is_a_value_that_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        DEVELOPMENT.chain_id = 2  # type: ignore[misc]
    assert ChainPolicy() == ChainPolicy()
    assert ResultPolicy().audit_window_days is None


@pytest.mark.rule("PRI-002")
def test_weights_whose_keys_would_not_fit_their_column_are_refused() -> None:
    good = msgspec.structs.replace(DEVELOPMENT, priority=PriorityPolicy(age_ref_ms=200_000))
    assert check_policy(good) == []
    bad = msgspec.structs.replace(DEVELOPMENT, priority=PriorityPolicy(age_ref_ms=100_000))
    assert [fault.path for fault in check_policy(bad)] == ["priority.w_age"]
