"""The policy settings, grouped by the domain that uses them: milliseconds, per mille, parts per million, blocks, bytes.

A policy is an argument of the rules; no rule looks one up. `limits` has what a setting may be.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from holdfast.core.base.values import Network

SECOND_MS: Final = 1_000
HOUR_MS: Final = 3_600 * SECOND_MS
DAY_MS: Final = 24 * HOUR_MS
KIB: Final = 1_024
MIB: Final = KIB * KIB
GIB: Final = KIB * MIB


class ChainPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """When blocks are sealed and how deep a block can still be rolled back."""

    block_ms: int = 2 * SECOND_MS
    idle_block_ms: int = 60 * SECOND_MS
    finality_depth: int = 0
    epoch_blocks: int = 1_800
    nullifier_window_blocks: int = 2_048
    tags_v2_height: int = 0
    """From this height on ids are made under the second version of their tags (CAN-003); 0 is never."""
    tags_grace_blocks: int = 43_200
    """For this many blocks after it the first version is still recognised."""


class AdmissionPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the queue admits."""

    payload_bytes_max: int = MIB
    queue_depth_max: int = 1_000_000
    in_flight_per_requester_max: int = 100_000
    back_pressure_ppm: int = 800_000
    idempotency_ms: int = DAY_MS


class PriorityPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Weights in per mille, the references they are measured against, and what a tier adds in per mille."""

    w_fee: int = 550
    w_age: int = 250
    w_size: int = 100
    w_tier: int = 100
    fee_ref: int = 1_000_000
    age_ref_ms: int = HOUR_MS
    size_ref: int = 65_536
    tier_free_per_mille: int = 0
    tier_pro_per_mille: int = 300
    tier_premium_per_mille: int = 600


class MatchOrder(StrEnum):
    """How one of several eligible providers is chosen."""

    SHUFFLE = "shuffle"
    SPREAD = "spread"
    SCORED = "scored"


class MatchPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How jobs are matched; an interval, window or `interleave_every` of 0 is off, a weight of 0 is no limit."""

    order: MatchOrder = MatchOrder.SHUFFLE
    interleave_every: int = 20
    batch_jobs_max: int = 256
    dispatch_interval_ms: int = 250
    min_health_ppm: int = 600_000
    requester_window_ms: int = 0
    requester_window_jobs_max: int = 0
    requester_weight_free: int = 1
    requester_weight_pro: int = 1
    requester_weight_premium: int = 1


class LeasePolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How long a provider may hold a job; shares of the lease in per mille."""

    ai_ms: int = 600 * SECOND_MS
    quantum_ms: int = 180 * SECOND_MS
    ack_timeout_ms: int = 5 * SECOND_MS
    renew_by_per_mille: int = 600
    renew_extends_per_mille: int = 500
    renewals_max: int = 4
    decline_cooldown_ms: int = 30 * SECOND_MS


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How long a failed job waits and how often it may fail."""

    base_ai_ms: int = 5 * SECOND_MS
    base_quantum_ms: int = 2 * SECOND_MS
    cap_ms: int = 900 * SECOND_MS
    failures_max: int = 6


class TtlPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """When an unfinished job expires and how long its tombstone stays."""

    ai_ms: int = DAY_MS
    quantum_ms: int = 2 * HOUR_MS
    relative_ms: int = 6 * HOUR_MS
    tombstone_ms: int = 7 * DAY_MS
    gc_jobs_max: int = 1_000


class QuotaPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one provider may hold at a time and do in an epoch."""

    leases_per_provider_max: int = 16
    ai_units_per_epoch: int = 100_000
    quantum_units_per_epoch: int = 10_000


class ProviderPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a provider puts at stake, how its health changes, what offences cost."""

    stake_ai_min: int = 10_000
    stake_quantum_min: int = 50_000
    heartbeat_ms: int = 60 * SECOND_MS
    heartbeat_stale_ms: int = 180 * SECOND_MS
    attestation_skew_ms: int = 180 * SECOND_MS
    missed_heartbeat_decay_ppm: int = 100_000
    ack_timeout_decay_ppm: int = 20_000
    lease_expired_decay_ppm: int = 100_000
    success_recovery_ppm: int = 20_000
    lease_expired_deny_ms: int = 60 * SECOND_MS
    failures_in_row_max: int = 3
    cooldown_ms: int = 60 * SECOND_MS
    cooldown_cap_ms: int = HOUR_MS
    slash_minor_ppm: int = 5_000
    slash_major_ppm: int = 50_000
    slash_severe_ppm: int = 250_000
    jail_minor_blocks: int = 300
    jail_major_blocks: int = 1_800
    jail_severe_blocks: int = 43_200
    heartbeat_grace_ms: int = 30 * SECOND_MS
    heartbeat_recovery_ppm: int = 50_000
    provider_fail_decay_ppm: int = 20_000
    offence_window_ms: int = DAY_MS
    unstake_lock_blocks: int = 1_800
    unstake_cooldown_ms: int = DAY_MS
    quorum_minority_decay_ppm: int = 50_000
    quorum_minority_slashes: bool = False


class ResultPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where result bytes are kept and for how long; an audit window of None is unlimited."""

    max_inline_bytes: int = 0
    retain_hot_blocks: int = 1_000
    retain_warm_days: int = 7
    retain_cold_days: int = 365
    result_ttl_blocks: int = 43_200
    audit_window_days: int | None = None
    may_lose_unarchived: bool = False
    serve_bytes: bool = False
    gc_rows_max: int = 5_000
    gc_bytes_max: int = 64 * MIB
    gc_ms_max: int = 50
    gc_interval_ms: int = 10 * SECOND_MS
    orphan_grace_hours: int = 24


class SpoolPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How an agent's evidence is flushed and how much disk a channel may take, reserve included."""

    flush_interval_ms: int = 250
    flush_records_max: int = 50
    queue_records_max: int = 65_536
    channel_bytes_max: int = GIB
    reserve_bytes: int = 64 * KIB
    reopen_below_per_mille: int = 900


class EvidencePolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How long evidence is kept once its session is final (None: for ever), and the limits of channels."""

    retain_days: int | None = None
    prune_rows_max: int = 1_000
    sessions_per_channel_max: int = 65_536
    legacy_channels_max: int = 1_024
    dead_letters_per_channel_max: int = 1_000


class ReadBack(StrEnum):
    """How often an archived item is read back before local bytes are deleted."""

    ALWAYS = "always"
    SAMPLED = "sampled"
    NEVER = "never"


class ArchivePolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How blobs are archived and when local bytes may be deleted."""

    retain_blocks: int = 0
    read_back: ReadBack = ReadBack.ALWAYS
    serve_archived: bool = True
    uploads_at_once_max: int = 8
    retry_base_ms: int = SECOND_MS
    retry_cap_ms: int = 300 * SECOND_MS
    attempts_max: int = 10
    stalled_retry_ms: int = HOUR_MS
    notice_version: int = 1
    notices_waiting_max: int = 4_096
    notice_resend_ms: int = 30 * SECOND_MS


class EnginePolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How much the engine's loop handles at a time."""

    inline_payload_bytes_max: int = 4 * KIB
    batch_events_max: int = 8_192
    projection_rows_max: int = 8_192
    snapshot_every_events: int = 1_000_000
    tables_lag_events_soft: int = 250_000
    tables_lag_events_max: int = 500_000
    clock_journal_ms: int = SECOND_MS


class Policy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All settings of one network; the defaults are those of a production network."""

    network: Network = Network.PRODUCTION
    chain_id: int = 1337
    chain: ChainPolicy = ChainPolicy()
    admission: AdmissionPolicy = AdmissionPolicy()
    priority: PriorityPolicy = PriorityPolicy()
    match: MatchPolicy = MatchPolicy()
    lease: LeasePolicy = LeasePolicy()
    retry: RetryPolicy = RetryPolicy()
    ttl: TtlPolicy = TtlPolicy()
    quota: QuotaPolicy = QuotaPolicy()
    provider: ProviderPolicy = ProviderPolicy()
    result: ResultPolicy = ResultPolicy()
    evidence: EvidencePolicy = EvidencePolicy()
    archive: ArchivePolicy = ArchivePolicy()
    engine: EnginePolicy = EnginePolicy()

    @classmethod
    def for_network(cls, network: Network, chain_id: int = 1337) -> Policy:
        """The defaults of that network: a development network keeps small results inline and can roll back."""
        if network is Network.PRODUCTION:
            return cls(network=network, chain_id=chain_id)
        return cls(
            network=network,
            chain_id=chain_id,
            chain=ChainPolicy(finality_depth=12),
            result=ResultPolicy(max_inline_bytes=64 * KIB),
        )
