"""What providers publish to the state machine; status changes and upkeep are decided by the workflow `revoke`."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import ClaimKeys, Commands, Events
from holdfast.core.provider import apply, decide, operator_actions
from holdfast.core.provider.messages import (
    Drain,
    HealthChanged,
    Heartbeat,
    HeartbeatMissed,
    HeartbeatReceived,
    ListingChanged,
    OutageCredited,
    ProviderDrained,
    ProviderRegistered,
    ProviderSlashed,
    ProviderStaked,
    ProviderStatusChanged,
    Register,
    RotateSigner,
    SetListing,
    SignerRotated,
    Stake,
    StakeReleased,
    Unstake,
    UnstakeRequested,
    stake_key,
    unstake_key,
)

COMMANDS: Final[Commands] = {
    Register: decide.register,
    Stake: decide.stake,
    Heartbeat: decide.heartbeat,
    Unstake: operator_actions.unstake,
    Drain: operator_actions.drain,
    RotateSigner: operator_actions.rotate,
    SetListing: operator_actions.set_listing,
}
EVENTS: Final[Events] = {
    ProviderRegistered: apply.apply_registered,
    ProviderStaked: apply.apply_staked,
    HeartbeatReceived: apply.apply_heartbeat,
    ProviderStatusChanged: apply.apply_status_changed,
    HealthChanged: apply.apply_health_changed,
    ProviderSlashed: apply.apply_slashed,
    UnstakeRequested: apply.apply_unstake_requested,
    StakeReleased: apply.apply_stake_released,
    ProviderDrained: apply.apply_drained,
    SignerRotated: apply.apply_rotated,
    ListingChanged: apply.apply_listing_changed,
    OutageCredited: apply.apply_outage_credited,
    HeartbeatMissed: apply.apply_heartbeat_missed,
}
CLAIM_KEYS: Final[ClaimKeys] = {
    Stake: lambda _, command: (stake_key(command),),
    Unstake: lambda _, command: (unstake_key(command),),
}
