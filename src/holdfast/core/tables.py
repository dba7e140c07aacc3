"""The tables of the projection (ENG-004): their stored names and columns, fixed as literals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from holdfast.core.blob.model import Blob, StoredPart
from holdfast.core.chain.model import Block
from holdfast.core.escrow.model import Account, Reservation, Transfer
from holdfast.core.evidence.model import DeadLetter, Evidence, SessionWatermark, WorkMessages
from holdfast.core.index.touch import DISCARDED, Marks, Touched
from holdfast.core.job.model import FailedJob, Job, SpecRow
from holdfast.core.key.model import Key
from holdfast.core.lease.model import Lease
from holdfast.core.proof.model import ProofVerdict
from holdfast.core.provider.model import Provider
from holdfast.core.queue.quota import Quota
from holdfast.core.result.model import Consumption, LogLeaf, Result
from holdfast.core.retention.model import Tombstone


class Table(msgspec.Struct, frozen=True):
    """A table: the record that is its row, and the stored name of each field, in order; the first is the key."""

    record: type[msgspec.Struct]
    columns: tuple[str, ...]
    packed: tuple[str, ...] = ()
    """Further columns, of packed bytes; a write of null leaves what is there."""


def _table(record: type[msgspec.Struct], columns: str, packed: str = "") -> Table:
    return Table(record, tuple(columns.split()), tuple(packed.split()))


TABLES: Final[dict[str, Table]] = {
    "account": _table(Account, "owner available held pending"),
    "reservation": _table(
        Reservation, "event id owner amount memo_size memo_digest status charged payee height settled"
    ),
    "key": _table(
        Key,
        "id event role account tier scopes label secret made_ms expires_ms revoked_ms old_secret old_until_ms"
        " daily_cap spent_day spent",
    ),
    "block": _table(
        Block,
        """
        event height hash status parent time_ms proposer beacon first_event last_event tx_count tx_root
        result_count result_root blob_count blob_root log_size log_root signature
        """,
    ),
    "job": _table(
        Job,
        """
        event id kind caller tier height tx_hash nonce request_hash size_bytes spec_digest max_fee units
        priority enqueue_ms expires_ms requirements proof state attempts failures not_before_ms
        relative_expires_ms charged payee settled_height reason ended_ms expires_height requeues requeued_ms
        parent parent_event quorum_n quorum_m is_public input_digest run_ms_max run_at_ms
        """,
        packed="leases",
    ),
    "spec": _table(SpecRow, "event raw"),
    "provider": _table(
        Provider,
        """
        id event public name account capabilities region price slots attested_until_ms registered_ms status
        stake health_ppm heartbeat_ms leases completed failed failures_in_row cooling_until_ms is_draining
        current_key cooldowns missed_heartbeats jailed_until unstaking unstake_height unstake_ms slashed
        offended_ms reason status_changed_by denied_by_list load attestor versions prices
        """,
    ),
    "lease": _table(
        Lease,
        """
        event id job_id provider_id attempt t_start_ms t_deadline_ms renew_by_ms ack_by_ms price duration_ms
        status acked_ms renewals late_renewals credited_ms submitted submitted_size submitted_ms reason
        ended_ms units epoch detail
        """,
    ),
    "result": _table(
        Result,
        """
        event task_id status height_resolved proof_nullifier result_digest result_size mime_type
        da_commitment expires_at leaf_index provider_id payee charged method reasons caller kind earliest is_public
        """,
    ),
    "consumption": _table(Consumption, "result event task_id caller kind tx_hash earliest height"),
    "verdict": _table(ProofVerdict, "event task_id lease_id provider_id method digest verdict reasons at_ms"),
    "leaf": _table(LogLeaf, "place height raw"),
    "tombstone": _table(Tombstone, "event task_id height leaf"),
    "watermark": _table(SessionWatermark, "id provider_id channel session acked ending at_ms sealed_ms pruned"),
    "evidence": _table(
        Evidence, "event provider_id channel session first_sequence last_sequence size digest lines leases"
    ),
    "work_log": _table(WorkMessages, "place event task_id lease_id attempt"),
    "dead_letter": _table(
        DeadLetter, "event provider_id channel session sequence name reason size digest at_ms status ended_ms note"
    ),
    "provider_quota": _table(
        Quota,
        "provider_id epoch ai_reserved ai_committed quantum_reserved quantum_committed"
        " compute_reserved compute_committed",
    ),
    "transfer": _table(Transfer, "event reference kind owner amount reason status height"),
    "blob": _table(
        Blob,
        """
        event height number block_hash proposer status versioned_hash commitment proof keccak item_id provider_id
        locator archived_by archived_at assurance signature alternates attempts retry_ms reason is_pruned
        """,
    ),
    "blob_part": _table(StoredPart, "place blob task_id result_digest start length"),
    "failed_job": _table(FailedJob, "event id kind caller max_fee attempts requeues reason failed_ms"),
}
"""The tables of the projection by their stored names. Names of tables and columns are bytes on disk: literals here."""


R = TypeVar("R", bound=msgspec.Struct)
_BOOLEANS: Final = {
    table.record: [place for place, field in enumerate(msgspec.structs.fields(table.record)) if field.type is bool]
    for table in TABLES.values()
}


def record_from_row(kind: type[R], row: Sequence[object]) -> R:
    """The record of a row as a store returns it: columns hold 0 and 1 for booleans. ValueError where it is none."""
    values = list(row)
    for place in _BOOLEANS[kind]:
        values[place] = {0: False, 1: True}.get(values[place], values[place])  # type: ignore[call-overload]
    return msgspec.convert(values, kind, builtin_types=(bytes,))


def discard_rows(kept: Mapping[str, Marks] | None = None) -> Touched:
    """The `touched` of a state that no rows are written from: the owner's, a standby's, that of any plain fold.

    `kept` are tables whose marks somebody keeps.
    """
    return dict.fromkeys(TABLES, DISCARDED) | dict(kept or {})
