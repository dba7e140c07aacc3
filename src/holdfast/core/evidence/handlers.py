"""What evidence publishes to the state machine; a retried dead letter is decided by the state machine itself."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import ClaimKeys, Commands, Events
from holdfast.core.evidence import dead_letters, messages, sessions, watermarks

COMMANDS: Final[Commands] = {
    messages.StoreEvidence: watermarks.store_evidence,
    messages.SealSession: sessions.seal_session,
    messages.PruneEvidence: sessions.prune_evidence,
    messages.AssignChannel: sessions.assign_channel,
}
EVENTS: Final[Events] = {
    messages.EvidenceStored: watermarks.apply_stored,
    messages.SessionSealed: sessions.apply_sealed,
    messages.RecordDeadLettered: dead_letters.apply_dead_lettered,
    messages.DeadLetterResolved: dead_letters.apply_resolved,
    messages.EvidencePruned: sessions.apply_pruned,
    messages.ChannelAssigned: sessions.apply_assigned,
}
CLAIM_KEYS: Final[ClaimKeys] = {messages.StoreEvidence: watermarks.invitation_keys}
