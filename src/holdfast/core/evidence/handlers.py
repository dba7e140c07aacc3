"""What evidence publishes to the state machine; a retried dead letter is decided by the state machine itself."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import Commands, Events
from holdfast.core.evidence import dead_letters, sessions, watermarks
from holdfast.core.evidence.messages import (
    AssignChannel,
    ChannelAssigned,
    DeadLetterResolved,
    EvidencePruned,
    EvidenceStored,
    PruneEvidence,
    RecordDeadLettered,
    SealSession,
    SessionSealed,
    StoreEvidence,
)

COMMANDS: Final[Commands] = {
    StoreEvidence: watermarks.store_evidence,
    SealSession: sessions.seal_session,
    PruneEvidence: sessions.prune_evidence,
    AssignChannel: sessions.assign_channel,
}
EVENTS: Final[Events] = {
    EvidenceStored: watermarks.apply_stored,
    SessionSealed: sessions.apply_sealed,
    RecordDeadLettered: dead_letters.apply_dead_lettered,
    DeadLetterResolved: dead_letters.apply_resolved,
    EvidencePruned: sessions.apply_pruned,
    ChannelAssigned: sessions.apply_assigned,
}
