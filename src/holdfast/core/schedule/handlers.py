"""What schedules publish to the state machine."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import ClaimKeys, Commands, Events
from holdfast.core.schedule import apply, decide, fire, messages

COMMANDS: Final[Commands] = {
    messages.CreateSchedule: decide.create,
    messages.PauseSchedule: decide.pause,
    messages.ResumeSchedule: decide.resume,
    messages.RemoveSchedule: decide.remove,
    messages.FireSchedule: fire.fire,
}
EVENTS: Final[Events] = {
    messages.ScheduleCreated: apply.apply_created,
    messages.ScheduleFired: apply.apply_fired,
    messages.ScheduleRefused: apply.apply_refused,
    messages.SchedulePaused: apply.apply_paused,
    messages.ScheduleResumed: apply.apply_resumed,
    messages.ScheduleEnded: apply.apply_ended,
    messages.ScheduleRemoved: apply.apply_removed,
}
CLAIM_KEYS: Final[ClaimKeys] = {messages.FireSchedule: fire.claim_keys}
