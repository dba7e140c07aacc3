"""The policy settings, grouped by the domain that uses them: milliseconds, per mille, parts per million, blocks, bytes.

A policy is an argument of the rules; no rule looks one up. `limits` checks one and names everything wrong with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from holdfast.core.base.values import I64_MAX, PPM, U64_MAX, Network

SECOND_MS: Final = 1_000
HOUR_MS: Final = 3_600 * SECOND_MS
DAY_MS: Final = 24 * HOUR_MS
KIB: Final = 1_024
MIB: Final = KIB * KIB
GIB: Final = KIB * MIB
BLOCKS_MAX: Final = 1_000_000_000
YEAR_MS: Final = 365 * DAY_MS
CENTURY_DAYS: Final = 36_500


class Range(NamedTuple):
    """The lowest and the highest value of a setting."""

    low: int
    high: int


class ChainPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """When blocks are sealed and how deep a block can still be rolled back."""

    block_ms: Annotated[int, Range(1, DAY_MS)] = 2 * SECOND_MS
    idle_block_ms: Annotated[int, Range(1, DAY_MS)] = 60 * SECOND_MS
    finality_depth: Annotated[int, Range(0, 100_000)] = 0
    epoch_blocks: Annotated[int, Range(1, BLOCKS_MAX)] = 1_800
    nullifier_window_blocks: Annotated[int, Range(1, BLOCKS_MAX)] = 2_048
    tags_v2_height: Annotated[int, Range(0, BLOCKS_MAX)] = 0
    """From this height on ids are made under the second version of their tags (CAN-003); 0 is never."""
    tags_grace_blocks: Annotated[int, Range(1, BLOCKS_MAX)] = 43_200
    """For this many blocks after it the first version is still recognised."""


class Visibility(StrEnum):
    """Who may read a job (JOB-010)."""

    PRIVATE = "private"
    """Its caller, operators, auditors, and the provider that holds its lease as far as it needs it."""
    PUBLIC = "public"


class JobPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What holds for jobs that do not say otherwise."""

    default_visibility: Visibility = Visibility.PRIVATE


class AdmissionPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the queue admits."""

    payload_bytes_max: Annotated[int, Range(1, 64 * MIB)] = MIB
    queue_depth_max: Annotated[int, Range(1, BLOCKS_MAX)] = 1_000_000
    in_flight_per_requester_max: Annotated[int, Range(1, BLOCKS_MAX)] = 100_000
    back_pressure_ppm: Annotated[int, Range(1, PPM)] = 800_000
    idempotency_ms: Annotated[int, Range(1, YEAR_MS)] = DAY_MS
    invalid_inputs_max: Annotated[int, Range(1, BLOCKS_MAX)] = 10
    """JOB-012: after this many jobs with invalid inputs in an epoch a requester has one job in flight."""
    input_claim_ms: Annotated[int, Range(0, DAY_MS)] = 60 * SECOND_MS
    """How long a claim that an input is invalid waits for a second provider, where none can try."""
    run_at_ahead_ms_max: Annotated[int, Range(0, YEAR_MS)] = 30 * DAY_MS
    """JOB-013: how far ahead the time may be before which a job is not assigned."""


class PriorityPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Weights in per mille, the references they are measured against, and what a tier adds in per mille."""

    w_fee: Annotated[int, Range(0, PPM)] = 550
    w_age: Annotated[int, Range(0, PPM)] = 250
    w_size: Annotated[int, Range(0, PPM)] = 100
    w_tier: Annotated[int, Range(0, PPM)] = 100
    fee_ref: Annotated[int, Range(1, U64_MAX)] = 1_000_000
    age_ref_ms: Annotated[int, Range(1, YEAR_MS)] = HOUR_MS
    size_ref: Annotated[int, Range(1, U64_MAX)] = 65_536
    tier_free_per_mille: Annotated[int, Range(0, 1_000)] = 0
    tier_pro_per_mille: Annotated[int, Range(0, 1_000)] = 300
    tier_premium_per_mille: Annotated[int, Range(0, 1_000)] = 600


class MatchOrder(StrEnum):
    """How one of several eligible providers is chosen."""

    SHUFFLE = "shuffle"
    SPREAD = "spread"
    SCORED = "scored"


class MatchPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How jobs are matched; an interval, window or `interleave_every` of 0 is off, a weight of 0 is no limit."""

    order: MatchOrder = MatchOrder.SHUFFLE
    interleave_every: Annotated[int, Range(0, PPM)] = 20
    batch_jobs_max: Annotated[int, Range(1, 100_000)] = 256
    dispatch_interval_ms: Annotated[int, Range(1, 60 * SECOND_MS)] = 250
    min_health_ppm: Annotated[int, Range(0, PPM)] = 600_000
    requester_window_ms: Annotated[int, Range(0, YEAR_MS)] = 0
    requester_window_jobs_max: Annotated[int, Range(0, BLOCKS_MAX)] = 0
    requester_weight_free: Annotated[int, Range(0, PPM)] = 1
    requester_weight_pro: Annotated[int, Range(0, PPM)] = 1
    requester_weight_premium: Annotated[int, Range(0, PPM)] = 1


class LeasePolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How long a provider may hold a job; shares of the lease in per mille."""

    ai_ms: Annotated[int, Range(1, YEAR_MS)] = 600 * SECOND_MS
    quantum_ms: Annotated[int, Range(1, YEAR_MS)] = 180 * SECOND_MS
    ack_timeout_ms: Annotated[int, Range(1, DAY_MS)] = 5 * SECOND_MS
    renew_by_per_mille: Annotated[int, Range(1, 999)] = 600
    renew_extends_per_mille: Annotated[int, Range(1, 1_000)] = 500
    renewals_max: Annotated[int, Range(0, 1_000)] = 4
    decline_cooldown_ms: Annotated[int, Range(0, YEAR_MS)] = 30 * SECOND_MS


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How long a failed job waits and how often it may fail."""

    base_ai_ms: Annotated[int, Range(1, DAY_MS)] = 5 * SECOND_MS
    base_quantum_ms: Annotated[int, Range(1, DAY_MS)] = 2 * SECOND_MS
    cap_ms: Annotated[int, Range(1, YEAR_MS)] = 900 * SECOND_MS
    failures_max: Annotated[int, Range(1, 1_000)] = 6
    backoff_factor: Annotated[int, Range(1, 100)] = 2


class TtlPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """When an unfinished job expires and how long its tombstone stays."""

    ai_ms: Annotated[int, Range(1, YEAR_MS)] = DAY_MS
    quantum_ms: Annotated[int, Range(1, YEAR_MS)] = 2 * HOUR_MS
    relative_ms: Annotated[int, Range(1, YEAR_MS)] = 6 * HOUR_MS
    tombstone_ms: Annotated[int, Range(1, 100 * YEAR_MS)] = 7 * DAY_MS
    gc_jobs_max: Annotated[int, Range(1, PPM)] = 1_000


class QuotaPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one provider may hold at a time and do in an epoch."""

    leases_per_provider_max: Annotated[int, Range(1, PPM)] = 16
    ai_units_per_epoch: Annotated[int, Range(0, I64_MAX)] = 100_000
    quantum_units_per_epoch: Annotated[int, Range(0, I64_MAX)] = 10_000


class ProviderPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a provider puts at stake, how its health changes, what offences cost."""

    stake_ai_min: Annotated[int, Range(0, U64_MAX)] = 10_000
    stake_quantum_min: Annotated[int, Range(0, U64_MAX)] = 50_000
    heartbeat_ms: Annotated[int, Range(1, DAY_MS)] = 60 * SECOND_MS
    heartbeat_stale_ms: Annotated[int, Range(1, YEAR_MS)] = 180 * SECOND_MS
    attestation_skew_ms: Annotated[int, Range(0, DAY_MS)] = 180 * SECOND_MS
    missed_heartbeat_decay_ppm: Annotated[int, Range(0, PPM)] = 100_000
    ack_timeout_decay_ppm: Annotated[int, Range(0, PPM)] = 20_000
    lease_expired_decay_ppm: Annotated[int, Range(0, PPM)] = 100_000
    success_recovery_ppm: Annotated[int, Range(0, PPM)] = 20_000
    lease_expired_deny_ms: Annotated[int, Range(0, YEAR_MS)] = 60 * SECOND_MS
    failures_in_row_max: Annotated[int, Range(1, 1_000)] = 3
    cooldown_ms: Annotated[int, Range(0, YEAR_MS)] = 60 * SECOND_MS
    cooldown_cap_ms: Annotated[int, Range(0, YEAR_MS)] = HOUR_MS
    slash_minor_ppm: Annotated[int, Range(0, PPM)] = 5_000
    slash_major_ppm: Annotated[int, Range(0, PPM)] = 50_000
    slash_severe_ppm: Annotated[int, Range(0, PPM)] = 250_000
    jail_minor_blocks: Annotated[int, Range(0, BLOCKS_MAX)] = 300
    jail_major_blocks: Annotated[int, Range(0, BLOCKS_MAX)] = 1_800
    jail_severe_blocks: Annotated[int, Range(0, BLOCKS_MAX)] = 43_200
    heartbeat_grace_ms: Annotated[int, Range(0, DAY_MS)] = 30 * SECOND_MS
    heartbeat_recovery_ppm: Annotated[int, Range(1, PPM)] = 50_000
    provider_fail_decay_ppm: Annotated[int, Range(0, PPM)] = 20_000
    offence_window_ms: Annotated[int, Range(0, YEAR_MS)] = DAY_MS
    unstake_lock_blocks: Annotated[int, Range(0, BLOCKS_MAX)] = 1_800
    unstake_cooldown_ms: Annotated[int, Range(0, YEAR_MS)] = DAY_MS
    quorum_minority_decay_ppm: Annotated[int, Range(0, PPM)] = 50_000
    quorum_minority_slashes: bool = False
    attestors_required_ai: tuple[str, ...] = ()
    attestors_required_quantum: tuple[str, ...] = ()
    """PRV-005: a provider that none of these attested gets no work of that kind; empty: any attestation is enough."""


class ProofPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What can be proved (JOB-011): the verifiers and recomputers of all nodes of this network, by name."""

    methods: tuple[str, ...] = ("attested", "traps", "recompute")
    recomputers: tuple[str, ...] = ("AI:digits", "AI:echo", "AI:sleep", "QUANTUM:circuit")
    """Work that `recompute` computes again: `AI:` and the model, `COMPUTE:` and the runtime, or `QUANTUM:circuit`."""


class ResultPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where result bytes are kept and for how long; an audit window of None is unlimited."""

    max_inline_bytes: Annotated[int, Range(0, MIB)] = 0
    retain_hot_blocks: Annotated[int, Range(0, BLOCKS_MAX)] = 1_000
    retain_warm_days: Annotated[int, Range(0, CENTURY_DAYS)] = 7
    retain_cold_days: Annotated[int, Range(0, CENTURY_DAYS)] = 365
    result_ttl_blocks: Annotated[int, Range(1, BLOCKS_MAX)] = 43_200
    audit_window_days: Annotated[int | None, Range(0, CENTURY_DAYS)] = None
    may_lose_unarchived: bool = False
    gc_rows_max: Annotated[int, Range(1, PPM)] = 5_000
    gc_bytes_max: Annotated[int, Range(1, GIB)] = 64 * MIB
    gc_ms_max: Annotated[int, Range(1, 60 * SECOND_MS)] = 50
    gc_interval_ms: Annotated[int, Range(1, DAY_MS)] = 10 * SECOND_MS
    orphan_grace_hours: Annotated[int, Range(1, 24 * CENTURY_DAYS)] = 24


class SpoolPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How an agent's evidence is flushed and how much disk a channel may take, reserve included."""

    flush_interval_ms: int = 250
    flush_records_max: int = 50
    queue_records_max: int = 65_536
    channel_bytes_max: int = GIB
    reserve_bytes: int = 64 * KIB
    reopen_below_per_mille: int = 900


class UnstakedEvidence(StrEnum):
    """Whose evidence is stored among providers without a stake (SEC-002)."""

    OPEN = "open"
    INVITED = "invited"


class EvidencePolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How long evidence is kept once its session is final (None: for ever), and the limits of channels."""

    retain_days: Annotated[int | None, Range(0, CENTURY_DAYS)] = None
    prune_rows_max: Annotated[int, Range(1, 1_000)] = 1_000
    sessions_per_channel_max: Annotated[int, Range(1, 100 * PPM)] = 65_536
    legacy_channels_max: Annotated[int, Range(0, PPM)] = 1_024
    dead_letters_per_channel_max: Annotated[int, Range(1, PPM)] = 1_000
    unstaked: UnstakedEvidence = UnstakedEvidence.INVITED
    """Whose evidence is stored without a stake; a development network begins with `open`."""


class ReadBack(StrEnum):
    """How often an archived item is read back before local bytes are deleted."""

    ALWAYS = "always"
    SAMPLED = "sampled"
    NEVER = "never"


class ArchivePolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How blobs are archived and when local bytes may be deleted."""

    retain_blocks: Annotated[int, Range(0, BLOCKS_MAX)] = 0
    read_back: ReadBack = ReadBack.ALWAYS
    serve_archived: bool = True
    uploads_at_once_max: Annotated[int, Range(1, 1_000)] = 8
    retry_base_ms: Annotated[int, Range(1, DAY_MS)] = SECOND_MS
    retry_cap_ms: Annotated[int, Range(1, YEAR_MS)] = 300 * SECOND_MS
    attempts_max: Annotated[int, Range(1, 1_000)] = 10
    stalled_retry_ms: Annotated[int, Range(1, YEAR_MS)] = HOUR_MS
    notice_version: Annotated[int, Range(0, 1)] = 1
    notices_waiting_max: Annotated[int, Range(1, PPM)] = 4_096
    notice_resend_ms: Annotated[int, Range(1, DAY_MS)] = 30 * SECOND_MS
    blob_wait_blocks: Annotated[int, Range(0, BLOCKS_MAX)] = 30
    """How many blocks the first result in a blob waits for others that fill it."""
    blobs_per_block_max: Annotated[int, Range(1, 4_096)] = 64
    bytes_per_day_max: Annotated[int, Range(0, I64_MAX)] = 0
    """What is uploaded in a day; 0 is no limit."""
    trust_receipts: bool = False
    """Delete local bytes at the archive's receipt, without reading anything back: an archive that lies loses them."""
    prune_quorum: bool = False
    """Delete local bytes only when two thirds of the validators have confirmed the record (NTC-004)."""


class EnginePolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How much the engine's loop handles at a time."""

    inline_payload_bytes_max: Annotated[int, Range(0, 4 * KIB)] = 4 * KIB
    batch_events_max: Annotated[int, Range(1, PPM)] = 8_192
    projection_rows_max: Annotated[int, Range(1, PPM)] = 8_192
    snapshot_every_events: Annotated[int, Range(1, BLOCKS_MAX)] = 1_000_000
    tables_lag_events_soft: Annotated[int, Range(1, BLOCKS_MAX)] = 250_000
    tables_lag_events_max: Annotated[int, Range(1, BLOCKS_MAX)] = 500_000
    clock_journal_ms: Annotated[int, Range(1, SECOND_MS)] = SECOND_MS


class TreasuryPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The most that one deposit or one withdrawal may move (ESC-003)."""

    deposit_max: Annotated[int, Range(0, I64_MAX)] = 1_000_000_000_000
    withdrawal_max: Annotated[int, Range(0, I64_MAX)] = 1_000_000_000_000


class SchedulePolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How many schedules there may be, how often they fire, and when refusals pause one (JOB-014)."""

    per_caller_max: Annotated[int, Range(0, PPM)] = 100
    total_max: Annotated[int, Range(0, PPM)] = 10_000
    interval_ms_min: Annotated[int, Range(SECOND_MS, YEAR_MS)] = 60 * SECOND_MS
    interval_ms_max: Annotated[int, Range(SECOND_MS, YEAR_MS)] = YEAR_MS
    refusals_in_row_max: Annotated[int, Range(1, PPM)] = 10
    payload_bytes_max: Annotated[int, Range(1, 64 * KIB)] = 16 * KIB
    """Payloads of schedules are in memory while they exist."""


class Policy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All settings of one network; the defaults are those of a production network."""

    network: Network = Network.PRODUCTION
    chain_id: Annotated[int, Range(0, U64_MAX)] = 1337
    chain: ChainPolicy = ChainPolicy()
    job: JobPolicy = JobPolicy()
    admission: AdmissionPolicy = AdmissionPolicy()
    priority: PriorityPolicy = PriorityPolicy()
    match: MatchPolicy = MatchPolicy()
    lease: LeasePolicy = LeasePolicy()
    retry: RetryPolicy = RetryPolicy()
    ttl: TtlPolicy = TtlPolicy()
    quota: QuotaPolicy = QuotaPolicy()
    provider: ProviderPolicy = ProviderPolicy()
    result: ResultPolicy = ResultPolicy()
    proof: ProofPolicy = ProofPolicy()
    evidence: EvidencePolicy = EvidencePolicy()
    archive: ArchivePolicy = ArchivePolicy()
    engine: EnginePolicy = EnginePolicy()
    treasury: TreasuryPolicy = TreasuryPolicy()
    schedule: SchedulePolicy = SchedulePolicy()

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
            evidence=EvidencePolicy(unstaked=UnstakedEvidence.OPEN),
        )


def settings_of(policy: Policy) -> dict[str, Any]:
    """Every setting by its path: `chain.block_ms`."""
    return dict(flatten(msgspec.to_builtins(policy)))


def flatten(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """The values of nested tables with their paths."""
    leaves: list[tuple[str, Any]] = []
    for name, value in table.items():
        is_table = isinstance(value, Mapping)
        leaves += flatten(value, f"{prefix}{name}.") if is_table else [(prefix + name, value)]
    return leaves


def policy_differences(ours: Policy, theirs: Policy) -> dict[str, tuple[Any, Any]]:
    """The settings that differ: path, our value, their value."""
    other = settings_of(theirs)
    return {path: (value, other[path]) for path, value in settings_of(ours).items() if value != other[path]}
