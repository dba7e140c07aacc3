"""The allowed values of settings, alone and compared with others: tables that are checked as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Final

import msgspec

from holdfast.core.base.values import I64_MAX, PPM, U64_MAX, Network
from holdfast.core.policy.settings import DAY_MS, GIB, KIB, MIB, SECOND_MS, Policy


class SettingFault(msgspec.Struct, frozen=True, gc=False):
    """One thing wrong with a setting: where, what, and what to do about it."""

    path: str
    message: str
    hint: str = ""
    rule: str = "SEC-001"


BLOCKS_MAX: Final = 1_000_000_000
YEAR_MS: Final = 365 * DAY_MS
CENTURY_DAYS: Final = 36_500
PRIORITY_ONE: Final = 10**9
"""One whole, in the integers of PRI-001."""
AGE_MS_MAX: Final = 4_102_444_800_000
"""The year 2100 in milliseconds: the latest time at which a job is enqueued."""

RANGES: Final = (
    ("chain_id", 0, U64_MAX),
    ("chain.block_ms", 1, DAY_MS),
    ("chain.idle_block_ms", 1, DAY_MS),
    ("chain.finality_depth", 0, 100_000),
    ("chain.epoch_blocks", 1, BLOCKS_MAX),
    ("chain.nullifier_window_blocks", 1, BLOCKS_MAX),
    ("chain.tags_v2_height", 0, BLOCKS_MAX),
    ("chain.tags_grace_blocks", 1, BLOCKS_MAX),
    ("admission.payload_bytes_max", 1, 64 * MIB),
    ("admission.queue_depth_max", 1, BLOCKS_MAX),
    ("admission.in_flight_per_requester_max", 1, BLOCKS_MAX),
    ("admission.back_pressure_ppm", 1, PPM),
    ("admission.idempotency_ms", 1, YEAR_MS),
    ("priority.w_fee", 0, PPM),
    ("priority.w_age", 0, PPM),
    ("priority.w_size", 0, PPM),
    ("priority.w_tier", 0, PPM),
    ("priority.fee_ref", 1, U64_MAX),
    ("priority.age_ref_ms", 1, YEAR_MS),
    ("priority.size_ref", 1, U64_MAX),
    ("priority.tier_free_per_mille", 0, 1_000),
    ("priority.tier_pro_per_mille", 0, 1_000),
    ("priority.tier_premium_per_mille", 0, 1_000),
    ("match.interleave_every", 0, PPM),
    ("match.batch_jobs_max", 1, 100_000),
    ("match.dispatch_interval_ms", 1, 60 * SECOND_MS),
    ("match.min_health_ppm", 0, PPM),
    ("match.requester_window_ms", 0, YEAR_MS),
    ("match.requester_window_jobs_max", 0, BLOCKS_MAX),
    ("match.requester_weight_free", 0, PPM),
    ("match.requester_weight_pro", 0, PPM),
    ("match.requester_weight_premium", 0, PPM),
    ("lease.ai_ms", 1, YEAR_MS),
    ("lease.quantum_ms", 1, YEAR_MS),
    ("lease.ack_timeout_ms", 1, DAY_MS),
    ("lease.renew_by_per_mille", 1, 999),
    ("lease.renew_extends_per_mille", 1, 1_000),
    ("lease.renewals_max", 0, 1_000),
    ("lease.decline_cooldown_ms", 0, YEAR_MS),
    ("retry.base_ai_ms", 1, DAY_MS),
    ("retry.base_quantum_ms", 1, DAY_MS),
    ("retry.cap_ms", 1, YEAR_MS),
    ("retry.failures_max", 1, 1_000),
    ("ttl.ai_ms", 1, YEAR_MS),
    ("ttl.quantum_ms", 1, YEAR_MS),
    ("ttl.relative_ms", 1, YEAR_MS),
    ("ttl.tombstone_ms", 1, 100 * YEAR_MS),
    ("ttl.gc_jobs_max", 1, PPM),
    ("quota.leases_per_provider_max", 1, PPM),
    ("quota.ai_units_per_epoch", 0, I64_MAX),
    ("quota.quantum_units_per_epoch", 0, I64_MAX),
    ("provider.stake_ai_min", 0, U64_MAX),
    ("provider.stake_quantum_min", 0, U64_MAX),
    ("provider.heartbeat_ms", 1, DAY_MS),
    ("provider.heartbeat_stale_ms", 1, YEAR_MS),
    ("provider.attestation_skew_ms", 0, DAY_MS),
    ("provider.missed_heartbeat_decay_ppm", 0, PPM),
    ("provider.ack_timeout_decay_ppm", 0, PPM),
    ("provider.lease_expired_decay_ppm", 0, PPM),
    ("provider.success_recovery_ppm", 0, PPM),
    ("provider.lease_expired_deny_ms", 0, YEAR_MS),
    ("provider.failures_in_row_max", 1, 1_000),
    ("provider.cooldown_ms", 0, YEAR_MS),
    ("provider.cooldown_cap_ms", 0, YEAR_MS),
    ("provider.slash_minor_ppm", 0, PPM),
    ("provider.slash_major_ppm", 0, PPM),
    ("provider.slash_severe_ppm", 0, PPM),
    ("provider.jail_minor_blocks", 0, BLOCKS_MAX),
    ("provider.jail_major_blocks", 0, BLOCKS_MAX),
    ("provider.jail_severe_blocks", 0, BLOCKS_MAX),
    ("provider.heartbeat_grace_ms", 0, DAY_MS),
    ("provider.heartbeat_recovery_ppm", 1, PPM),
    ("provider.provider_fail_decay_ppm", 0, PPM),
    ("provider.offence_window_ms", 0, YEAR_MS),
    ("provider.unstake_lock_blocks", 0, BLOCKS_MAX),
    ("provider.unstake_cooldown_ms", 0, YEAR_MS),
    ("provider.quorum_minority_decay_ppm", 0, PPM),
    ("result.max_inline_bytes", 0, MIB),
    ("result.retain_hot_blocks", 0, BLOCKS_MAX),
    ("result.retain_warm_days", 0, CENTURY_DAYS),
    ("result.retain_cold_days", 0, CENTURY_DAYS),
    ("result.result_ttl_blocks", 1, BLOCKS_MAX),
    ("result.audit_window_days", 0, CENTURY_DAYS),
    ("result.gc_rows_max", 1, PPM),
    ("result.gc_bytes_max", 1, GIB),
    ("result.gc_ms_max", 1, 60 * SECOND_MS),
    ("result.gc_interval_ms", 1, DAY_MS),
    ("result.orphan_grace_hours", 1, 24 * CENTURY_DAYS),
    ("evidence.retain_days", 0, CENTURY_DAYS),
    ("evidence.prune_rows_max", 1, 1_000),
    ("evidence.sessions_per_channel_max", 1, 100 * PPM),
    ("evidence.legacy_channels_max", 0, PPM),
    ("evidence.dead_letters_per_channel_max", 1, PPM),
    ("archive.retain_blocks", 0, BLOCKS_MAX),
    ("archive.uploads_at_once_max", 1, 1_000),
    ("archive.retry_base_ms", 1, DAY_MS),
    ("archive.retry_cap_ms", 1, YEAR_MS),
    ("archive.attempts_max", 1, 1_000),
    ("archive.stalled_retry_ms", 1, YEAR_MS),
    ("archive.notice_version", 0, 1),
    ("archive.notices_waiting_max", 1, PPM),
    ("archive.notice_resend_ms", 1, DAY_MS),
    ("engine.inline_payload_bytes_max", 0, 4 * KIB),
    ("engine.batch_events_max", 1, PPM),
    ("engine.projection_rows_max", 1, PPM),
    ("engine.snapshot_every_events", 1, BLOCKS_MAX),
    ("engine.tables_lag_events_soft", 1, BLOCKS_MAX),
    ("engine.tables_lag_events_max", 1, BLOCKS_MAX),
    ("engine.clock_journal_ms", 1, SECOND_MS),
)
"""Path, lowest and highest value allowed; one row for every integer setting."""

REORG_RULE: Final = "CHN-005"

ORDERED: Final = (
    ("chain.block_ms", "chain.idle_block_ms", "SEC-001", "an idle chain seals no faster than a busy one"),
    (
        "chain.finality_depth",
        "result.retain_hot_blocks",
        REORG_RULE,
        "a block that can be rolled back needs its results hot",
    ),
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
    ("result.retain_warm_days", "result.retain_cold_days", "SEC-001", "bytes leave the warm tier before the cold one"),
    ("result.retain_cold_days", "result.audit_window_days", "SEC-001", "a record must outlive the bytes it speaks of"),
    ("archive.retry_base_ms", "archive.retry_cap_ms", "SEC-001", "the first delay cannot be above the longest"),
    ("archive.retry_cap_ms", "archive.stalled_retry_ms", "SEC-001", "a stalled upload is retried slower, not faster"),
)
"""The first setting must not be above the second: with the rule and the reason."""

RETENTION_UNITS_MS: Final = (
    ("ttl.tombstone_ms", 1),
    ("result.retain_warm_days", DAY_MS),
    ("result.audit_window_days", DAY_MS),
)
"""Retention settings and their unit in milliseconds: each must cover the longest time to finality."""


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
    if policy.result.serve_bytes and policy.network is not Network.DEVELOPMENT:
        message = "result bytes are served by the node only on a development network"
        yield SettingFault("result.serve_bytes", message, "leave it off: clients fetch bytes by their commitment")
