"""What the network agrees on about evidence, results, blobs, the journal and money."""

from __future__ import annotations

from typing import Final

from holdfast.cli.init.sections.setting_line import Section, SettingLine

STORAGE: Final = (
    Section(
        "policy.evidence",
        ("How long evidence is kept: retain_days = N prunes finished sessions after N days.",),
        (
            SettingLine("retain_days", "prune finished sessions after this many days; not set: never", "90"),
            SettingLine("prune_rows_max", "rows pruned at a time"),
            SettingLine("sessions_per_channel_max", "sessions that one sender may begin"),
            SettingLine("legacy_channels_max", "channels of v0.1 senders"),
            SettingLine("dead_letters_per_channel_max", "how many may wait for an operator"),
            SettingLine("unstaked", "whose evidence is stored without a stake: open or invited"),
        ),
    ),
    Section(
        "policy.result",
        ("Where results' bytes are stored, and for how long.",),
        (
            SettingLine(
                "max_inline_bytes", "results up to this size are also in the store; larger ones get a DA commitment"
            ),
            SettingLine("retain_hot_blocks", "in the store"),
            SettingLine("retain_warm_days", "on the disk, at least"),
            SettingLine("retain_cold_days", "the record"),
            SettingLine(
                "result_ttl_blocks", "a result expires this many blocks after its job, unless the job says when"
            ),
            SettingLine("audit_window_days", "how long the tombstone of a record stays; not set: for ever", "730"),
            SettingLine("may_lose_unarchived", "also delete from the disk what is not in an archive"),
            SettingLine("gc_interval_ms", "how often retention runs"),
            SettingLine("gc_rows_max", "rows that one run deletes at most"),
            SettingLine("gc_bytes_max", "bytes that one run deletes at most"),
            SettingLine("gc_ms_max", "how long one run works before it rests"),
            SettingLine("orphan_grace_hours", "how long a file that nothing needs stays on the disk"),
        ),
    ),
    Section(
        "policy.archive",
        ("When outputs are archived, and when this node's copies of their blobs are deleted.",),
        (
            SettingLine("blob_wait_blocks", "how many blocks an output waits for others in its blob"),
            SettingLine("blobs_per_block_max", "blobs that one block seals at most"),
            SettingLine("read_back", "before anything is deleted: always, sampled or never"),
            SettingLine("retain_blocks", "how many blocks an archived blob stays here, too"),
            SettingLine("trust_receipts", "delete at the archive's word, unread: an archive that lies loses bytes"),
            SettingLine("prune_quorum", "delete only when two thirds of the validators have confirmed"),
            SettingLine("serve_archived", "serve archived blobs as long as their bytes are still here"),
            SettingLine("bytes_per_day_max", "0: no limit"),
            SettingLine("uploads_at_once_max", "uploads that run at the same time"),
            SettingLine("retry_base_ms", "the first delay after a failed upload"),
            SettingLine("retry_cap_ms", "the longest delay"),
            SettingLine("attempts_max", "after this many an upload is stalled"),
            SettingLine("stalled_retry_ms", "how often a stalled upload is tried"),
            SettingLine("notice_version", "of archive notices between validators"),
            SettingLine("notices_waiting_max", "notices that may wait for their confirmation"),
            SettingLine("notice_resend_ms", "how often an unconfirmed notice is sent again"),
        ),
    ),
    Section(
        "policy.engine",
        ("How the journal is written.",),
        (
            SettingLine("snapshot_every_events", "how often a snapshot is written, for fast starts"),
            SettingLine(
                "tables_lag_events_soft", "events that the tables may be behind before they hold new jobs back"
            ),
            SettingLine(
                "tables_lag_events_max", "events that they may be behind before they hold new leases back, too"
            ),
            SettingLine("batch_events_max", "events in one batch of the journal"),
            SettingLine("projection_rows_max", "rows that the tables write at a time"),
            SettingLine("inline_payload_bytes_max", "larger payloads are rows of their own in the same transaction"),
            SettingLine("clock_journal_ms", "the time is journaled at least this often while there is work"),
        ),
    ),
    Section(
        "policy.treasury",
        ("What one deposit or withdrawal of a treasurer may move.",),
        (
            SettingLine("deposit_max", "of one deposit"),
            SettingLine("withdrawal_max", "of one withdrawal"),
        ),
    ),
)
