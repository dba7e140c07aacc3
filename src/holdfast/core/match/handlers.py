"""What matching publishes to the state machine."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import Commands, Events
from holdfast.core.match import decide, input_claims, requester_window
from holdfast.core.match.messages import Match, RequestersCounted

COMMANDS: Final[Commands] = {
    Match: decide.match,
    input_claims.JudgeInputClaims: input_claims.judge_input_claims,
}
EVENTS: Final[Events] = {
    RequestersCounted: requester_window.apply_counted,
    input_claims.InputClaimKept: input_claims.apply_claim_kept,
}
