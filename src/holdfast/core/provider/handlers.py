"""What providers publish to the state machine; status changes and upkeep are decided by the workflow `revoke`."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import ClaimKeys, Commands, Events
from holdfast.core.provider import apply, decide, invitations, messages, operator_actions

COMMANDS: Final[Commands] = {
    messages.Register: decide.register,
    messages.InviteProvider: invitations.invite,
    messages.Stake: decide.stake,
    messages.Heartbeat: decide.heartbeat,
    messages.Unstake: operator_actions.unstake,
    messages.Drain: operator_actions.drain,
    messages.RotateSigner: operator_actions.rotate,
    messages.SetListing: operator_actions.set_listing,
}
EVENTS: Final[Events] = {
    messages.ProviderRegistered: apply.apply_registered,
    messages.ProviderInvited: invitations.apply_invited,
    messages.InvitationUsed: invitations.apply_used,
    messages.ProviderStaked: apply.apply_staked,
    messages.HeartbeatReceived: apply.apply_heartbeat,
    messages.ProviderStatusChanged: apply.apply_status_changed,
    messages.HealthChanged: apply.apply_health_changed,
    messages.ProviderSlashed: apply.apply_slashed,
    messages.UnstakeRequested: apply.apply_unstake_requested,
    messages.StakeReleased: apply.apply_stake_released,
    messages.ProviderDrained: apply.apply_drained,
    messages.SignerRotated: apply.apply_rotated,
    messages.ListingChanged: apply.apply_listing_changed,
    messages.OutageCredited: apply.apply_outage_credited,
    messages.HeartbeatMissed: apply.apply_heartbeat_missed,
}
CLAIM_KEYS: Final[ClaimKeys] = {
    messages.InviteProvider: lambda _, command: (invitations.invited_key(command.invitation),),
    messages.Register: lambda _, command: invitations.invitation_keys(command),
    messages.Stake: lambda _, command: (messages.stake_key(command),),
    messages.Unstake: lambda _, command: (messages.unstake_key(command),),
}
