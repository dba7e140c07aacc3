"""The allowed values of settings, alone (`Range`) and compared with others: checked as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Final, get_type_hints

import msgspec

from holdfast.core.policy import DAY_MS, Policy


class SettingFault(msgspec.Struct, frozen=True, gc=False):
    """One thing wrong with a setting: where, what, and what to do about it."""

    path: str
    message: str
    hint: str = ""
    rule: str = "SEC-001"


PRIORITY_ONE: Final = 10**9
"""One whole, in the integers of PRI-001."""
AGE_MS_MAX: Final = 4_102_444_800_000
"""The year 2100 in milliseconds: the latest time at which a job is enqueued."""


def _ranges(group: type, prefix: str = "") -> Iterator[tuple[str, int, int]]:
    for name, hint in get_type_hints(group, include_extras=True).items():
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            yield from _ranges(hint, f"{prefix}{name}.")
        for low, high in getattr(hint, "__metadata__", ()):
            yield prefix + name, low, high


RANGES: Final = tuple(_ranges(Policy))
"""Path, lowest and highest value allowed, of every integer setting."""

REORG_RULE: Final = "CHN-005"

ORDERED: Final = (
    ("chain.block_ms", "chain.idle_block_ms", "SEC-001", "an idle chain seals no faster than a busy one"),
    ("chain.finality_depth", "result.retain_hot_blocks", REORG_RULE, "what can be rolled back needs its results hot"),
    ("priority.tier_free_per_mille", "priority.tier_pro_per_mille", "SEC-001", "a higher tier adds no less"),
    ("priority.tier_pro_per_mille", "priority.tier_premium_per_mille", "SEC-001", "a higher tier adds no less"),
    ("lease.ack_timeout_ms", "lease.ai_ms", "SEC-001", "a lease must outlive the wait for its ACK"),
    ("lease.ack_timeout_ms", "lease.quantum_ms", "SEC-001", "a lease must outlive the wait for its ACK"),
    ("retry.base_ai_ms", "retry.cap_ms", "SEC-001", "the first delay cannot be above the longest"),
    ("retry.base_quantum_ms", "retry.cap_ms", "SEC-001", "the first delay cannot be above the longest"),
    ("provider.heartbeat_ms", "provider.heartbeat_stale_ms", "SEC-001", "a heartbeat on time must count as fresh"),
    ("provider.cooldown_ms", "provider.cooldown_cap_ms", "SEC-001", "the first cooldown cannot be above the longest"),
    ("provider.slash_minor_ppm", "provider.slash_major_ppm", "SEC-001", "the worse offence costs no less"),
    ("provider.slash_major_ppm", "provider.slash_severe_ppm", "SEC-001", "the worse offence costs no less"),
    ("provider.jail_minor_blocks", "provider.jail_major_blocks", "SEC-001", "the worse offence jails no shorter"),
    ("provider.jail_major_blocks", "provider.jail_severe_blocks", "SEC-001", "the worse offence jails no shorter"),
    ("provider.unstake_cooldown_ms", "ttl.tombstone_ms", "RCV-002", "a second result is found while stake is locked"),
    ("result.retain_warm_days", "result.retain_cold_days", "SEC-001", "bytes leave the warm tier before the cold one"),
    ("result.retain_cold_days", "result.audit_window_days", "SEC-001", "a record must outlive the bytes it speaks of"),
    ("archive.retry_base_ms", "archive.retry_cap_ms", "SEC-001", "the first delay cannot be above the longest"),
    ("schedule.interval_ms_min", "schedule.interval_ms_max", "SEC-001", "no interval would be allowed"),
    ("schedule.per_caller_max", "schedule.total_max", "SEC-001", "one caller has no more than all together"),
    ("archive.retry_cap_ms", "archive.stalled_retry_ms", "SEC-001", "a stalled upload is retried slower, not faster"),
)
"""The first setting must not be above the second: with the rule and the reason."""

RETENTION_UNITS_MS: Final = (
    ("ttl.tombstone_ms", 1),
    ("result.audit_window_days", DAY_MS),
)
"""Retention settings and their unit in milliseconds: each must cover the longest time to finality.

Not `retain_warm_days`: pass 2 follows pass 1 (RET-002), which never reaches beyond the final height.
"""


def check_policy(policy: Policy) -> list[SettingFault]:
    """All faults of the policy, in the order of the tables; the list of a valid policy is empty."""
    faults = list(_out_of_range(policy))
    invalid = frozenset(fault.path for fault in faults)  # comparing with an invalid value would only add noise
    faults += _out_of_order(policy, invalid)
    faults += _too_short_for_reorg(policy, invalid)
    faults += _contradictions(policy)
    if not any(path.startswith("priority.") for path in invalid):
        faults += _keys_too_large(policy)
    return faults


def _out_of_range(policy: Policy) -> Iterator[SettingFault]:
    for path, low, high in RANGES:
        value = attrgetter(path)(policy)
        if value is None and path in OPTIONAL:
            continue
        if type(value) is not int:
            yield SettingFault(
                path, f"{value!r} is not an integer", "scale it: milliseconds, per mille, parts per million"
            )
        elif not low <= value <= high:
            yield SettingFault(path, f"{value} is not within {low} … {high}", f"set it to {min(max(value, low), high)}")


OPTIONAL: Final = frozenset({"evidence.retain_days", "result.audit_window_days"})
"""Settings that may be None, which is no limit."""


def _out_of_order(policy: Policy, invalid: frozenset[str]) -> Iterator[SettingFault]:
    for lesser, greater, rule, why in ORDERED:
        if invalid & {lesser, greater}:
            continue
        low, high = attrgetter(lesser)(policy), attrgetter(greater)(policy)
        if high is not None and low > high:
            yield SettingFault(
                lesser, f"{low} is above {greater} = {high}: {why}", f"raise {greater} or lower {lesser}", rule
            )


def _too_short_for_reorg(policy: Policy, invalid: frozenset[str]) -> Iterator[SettingFault]:
    """CHN-005: nothing that a reorg above the finalized height needs may be deleted before it."""
    if invalid & {"chain.finality_depth", "chain.block_ms", "chain.idle_block_ms"}:
        return
    depth = policy.chain.finality_depth
    finality_ms = depth * max(policy.chain.block_ms, policy.chain.idle_block_ms)
    for path, unit_ms in RETENTION_UNITS_MS:
        kept = attrgetter(path)(policy)
        if path not in invalid and kept is not None and kept * unit_ms < finality_ms:
            message = f"{kept} ends before a block is final: {depth} idle blocks take {finality_ms} ms"
            yield SettingFault(
                path, message, f"set it to {-(-finality_ms // unit_ms)} or lower chain.finality_depth", REORG_RULE
            )


def _keys_too_large(policy: Policy) -> Iterator[SettingFault]:
    """PRI-002: a key is stored as a signed 64-bit integer."""
    rank = policy.priority
    highest = (rank.w_fee + rank.w_size + rank.w_tier) * PRIORITY_ONE + rank.w_age * (
        AGE_MS_MAX * PRIORITY_ONE // rank.age_ref_ms
    )
    if highest >= 2**63:
        yield SettingFault(
            "priority.w_age", "keys of the year 2100 would not fit 64 bits", "lower w_* or raise age_ref_ms"
        )


def _contradictions(policy: Policy) -> Iterator[SettingFault]:
    rank, match = policy.priority, policy.match
    if not any((rank.w_fee, rank.w_age, rank.w_size, rank.w_tier)):
        yield SettingFault("priority", "all weights are 0: every job would rank the same", "give one of w_* a weight")
    if bool(match.requester_window_ms) != bool(match.requester_window_jobs_max):
        message = "a window needs both a length and a number of jobs"
        yield SettingFault("match.requester_window_ms", message, "set requester_window_jobs_max too, or both to 0")
