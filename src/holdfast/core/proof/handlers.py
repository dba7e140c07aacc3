"""What proofs publish to the state machine; submission and acceptance are the workflow `complete`."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import ClaimKeys, CommandRuns, Events
from holdfast.core.proof import apply, decide
from holdfast.core.proof.messages import CompletionIgnored, ProofRefused, RecordVerdict, SubmitCompletion, VoteCast

COMMAND_RUNS: Final[CommandRuns] = {RecordVerdict: decide.record_verdicts}
EVENTS: Final[Events] = {
    VoteCast: apply.apply_vote_cast,
    CompletionIgnored: apply.apply_ignored,
    ProofRefused: apply.apply_refused,
}
CLAIM_KEYS: Final[ClaimKeys] = {SubmitCompletion: decide.submission_keys, RecordVerdict: decide.verdict_keys}
