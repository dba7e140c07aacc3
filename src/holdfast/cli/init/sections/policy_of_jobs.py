"""What the network agrees on about blocks, jobs, leases and providers."""

from __future__ import annotations

from typing import Final

from holdfast.cli.init.sections.setting_line import Section, SettingLine

JOBS: Final = (
    Section(
        "policy.chain",
        ("When blocks are sealed, and when they are final.",),
        (
            SettingLine("block_ms", "while transactions wait"),
            SettingLine("idle_block_ms", "while none wait"),
            SettingLine("finality_depth", "how many blocks can be rolled back"),
            SettingLine("epoch_blocks", "the length of an epoch, after which quotas begin anew"),
            SettingLine("nullifier_window_blocks", "in a window of this many blocks a nullifier counts once"),
            SettingLine("tags_v2_height", "from here on ids have tags of the second version; 0: never"),
            SettingLine("tags_grace_blocks", "for this many blocks after it the first version is recognised"),
        ),
    ),
    Section(
        "policy.job",
        ("Jobs that do not say otherwise.",),
        (SettingLine("default_visibility", "private or public: who may read a job"),),
    ),
    Section(
        "policy.admission",
        ("What the queue admits.",),
        (
            SettingLine("payload_bytes_max", "of one job"),
            SettingLine("queue_depth_max", "jobs that wait or are leased"),
            SettingLine("in_flight_per_requester_max", "of them, those of one requester"),
            SettingLine("back_pressure_ppm", "from this depth on, requesters may have fewer jobs"),
            SettingLine("idempotency_ms", "how long a retry is recognised"),
            SettingLine("invalid_inputs_max", "after this many in an epoch a requester has one job in flight"),
            SettingLine("input_claim_ms", "how long a claim of invalid input waits for a second provider"),
            SettingLine("run_at_ahead_ms_max", "how far ahead a job may name its time"),
        ),
    ),
    Section(
        "policy.schedule",
        ("Schedules, which admit a job again and again.",),
        (
            SettingLine("per_caller_max", "of one requester"),
            SettingLine("total_max", "of all requesters"),
            SettingLine("interval_ms_min", "between two firings"),
            SettingLine("interval_ms_max", "between two firings, where an interval is given"),
            SettingLine("refusals_in_row_max", "after this many a schedule is paused"),
            SettingLine("payload_bytes_max", "of its payload, which is in memory"),
        ),
    ),
    Section(
        "policy.priority",
        ("What comes first: weights in per mille, what they are measured against, what a tier adds.",),
        (
            SettingLine("w_fee", "weight of the fee"),
            SettingLine("w_age", "of the age"),
            SettingLine("w_size", "of the size: small jobs first"),
            SettingLine("w_tier", "of the requester's tier"),
            SettingLine("fee_ref", "a fee that counts fully; more adds nothing"),
            SettingLine("age_ref_ms", "an age that counts fully; more adds more"),
            SettingLine("size_ref", "a job of this size counts half"),
            SettingLine("tier_free_per_mille", "what the tier FREE adds"),
            SettingLine("tier_pro_per_mille", "the tier PRO"),
            SettingLine("tier_premium_per_mille", "the tier PREMIUM"),
        ),
    ),
    Section(
        "policy.match",
        ("Who gets which job.",),
        (
            SettingLine(
                "order",
                "shuffle: the first that fits; spread: the least loaded; scored: the highest stake times health",
            ),
            SettingLine("interleave_every", "every n-th lease goes to the oldest job; 0: never"),
            SettingLine("min_health_ppm", "a provider below it gets no work"),
            SettingLine("batch_jobs_max", "how many jobs a tick assigns at most"),
            SettingLine("dispatch_interval_ms", "how often a tick runs without a change"),
            SettingLine("requester_window_ms", "in a window of this length a requester is assigned"),
            SettingLine("requester_window_jobs_max", "at most this many jobs; both 0: no limit"),
            SettingLine("requester_weight_free", "that limit times this, for the tier FREE; 0: no limit"),
            SettingLine("requester_weight_pro", "for the tier PRO"),
            SettingLine("requester_weight_premium", "for the tier PREMIUM"),
        ),
    ),
    Section(
        "policy.lease",
        ("How long a provider may hold a job.",),
        (
            SettingLine("ai_ms", "a lease of kind AI or COMPUTE"),
            SettingLine("quantum_ms", "of kind QUANTUM"),
            SettingLine("ack_timeout_ms", "how long a provider may take to acknowledge it"),
            SettingLine("renew_by_per_mille", "a renewal after this share of the lease is late"),
            SettingLine("renew_extends_per_mille", "by this share of the lease a renewal extends it"),
            SettingLine("renewals_max", "how often, unless the job says how long it may run"),
            SettingLine("decline_cooldown_ms", "a provider that declined a job is not offered it for this long"),
        ),
    ),
    Section(
        "policy.retry",
        ("How long a failed job waits, and how often it may fail.",),
        (
            SettingLine("base_ai_ms", "the first delay, of kind AI or COMPUTE"),
            SettingLine("base_quantum_ms", "of kind QUANTUM"),
            SettingLine("backoff_factor", "each delay is this many times the one before"),
            SettingLine("cap_ms", "the longest delay"),
            SettingLine("failures_max", "after this many failures the job has failed"),
        ),
    ),
    Section(
        "policy.ttl",
        ("When a job that no provider finishes expires.",),
        (
            SettingLine("ai_ms", "of kind AI or COMPUTE"),
            SettingLine("quantum_ms", "of kind QUANTUM"),
            SettingLine("relative_ms", "from its first lease on; longer where the job may run longer"),
            SettingLine("tombstone_ms", "how long an ended job is kept: it can be requeued, or blamed"),
            SettingLine("gc_jobs_max", "ended jobs that are purged at a time"),
        ),
    ),
    Section(
        "policy.quota",
        ("What one provider may hold at a time and do in an epoch.",),
        (
            SettingLine("leases_per_provider_max", "leases at a time"),
            SettingLine("ai_units_per_epoch", "units of AI and COMPUTE"),
            SettingLine("quantum_units_per_epoch", "units of QUANTUM"),
        ),
    ),
    Section(
        "policy.provider",
        ("What providers put at stake, and what they lose.",),
        (
            SettingLine("stake_ai_min", "for work of kind AI or COMPUTE"),
            SettingLine("stake_quantum_min", "for work of kind QUANTUM"),
            SettingLine("heartbeat_ms", "how often a heartbeat is expected"),
            SettingLine("heartbeat_grace_ms", "how late a heartbeat may be"),
            SettingLine("heartbeat_stale_ms", "a provider without a heartbeat for this long gets no work"),
            SettingLine("attestation_skew_ms", "how far an attestation's time may be off"),
            SettingLine("missed_heartbeat_decay_ppm", "health that a missed heartbeat costs"),
            SettingLine("ack_timeout_decay_ppm", "a lease that was not acknowledged"),
            SettingLine("lease_expired_decay_ppm", "a lease that expired"),
            SettingLine("provider_fail_decay_ppm", "a failure that the provider reports"),
            SettingLine("success_recovery_ppm", "health that a result restores"),
            SettingLine("heartbeat_recovery_ppm", "that a heartbeat restores, below match.min_health_ppm"),
            SettingLine("lease_expired_deny_ms", "how long a provider is not offered a job it let expire"),
            SettingLine("failures_in_row_max", "after this many failures a provider cools down"),
            SettingLine("cooldown_ms", "for this long at first"),
            SettingLine("cooldown_cap_ms", "at most for this long"),
            SettingLine("offence_window_ms", "another invalid proof within this time is a major offence"),
            SettingLine("slash_minor_ppm", "stake that a minor offence costs"),
            SettingLine("slash_major_ppm", "a major one"),
            SettingLine("slash_severe_ppm", "a severe one"),
            SettingLine("jail_minor_blocks", "blocks without work after a minor offence"),
            SettingLine("jail_major_blocks", "a major one"),
            SettingLine("jail_severe_blocks", "a severe one"),
            SettingLine("unstake_lock_blocks", "unstaked money is locked for this many blocks"),
            SettingLine("unstake_cooldown_ms", "and for this long"),
            SettingLine(
                "quorum_minority_decay_ppm", "how much health a provider in the minority loses, where n of m must agree"
            ),
            SettingLine("quorum_minority_slashes", "and whether it also loses a part of its stake"),
            SettingLine("attestors_required_ai", "one of these must have attested a provider of AI; empty: any"),
            SettingLine("attestors_required_quantum", "and of QUANTUM"),
        ),
    ),
    Section(
        "policy.proof",
        ("The proofs that jobs may ask for, and the work that `recompute` computes again.",),
        (SettingLine("methods", "verifiers by name"), SettingLine("recomputers", "kind and model, runtime or circuit")),
    ),
)
