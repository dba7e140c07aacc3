"""What must hold of evidence after every event: watermarks, dead letters and their indexes agree (EVD-002, EVD-007)."""

from __future__ import annotations

from holdfast.core.evidence.model import (
    DeadLetterStatus,
    HasEvidence,
    rebuild_channel_sessions,
    rebuild_dead_letters_waiting,
    watermark_id,
)


def broken_invariants(state: HasEvidence) -> list[str]:
    watermarks, dead_letters = state.watermarks, state.dead_letters
    checks = {
        "a watermark is stored under its own id": all(
            id_ == watermark.id == watermark_id(watermark.channel, watermark.session)
            for id_, watermark in watermarks.items()
        ),
        "evidence is pruned at most up to its watermark": all(
            0 <= watermark.pruned <= watermark.acked for watermark in watermarks.values()
        ),
        "channels count their sessions": rebuild_channel_sessions(watermarks) == state.channel_sessions,
        "channels count their waiting dead letters": rebuild_dead_letters_waiting(dead_letters)
        == state.dead_letters_waiting,
        "only waiting dead letters are in memory": all(
            number == dead_letter.event and dead_letter.status is DeadLetterStatus.WAITING
            for number, dead_letter in dead_letters.items()
        ),
    }
    return [invariant for invariant, holds in checks.items() if not holds]
