"""What becomes of leases whose provider may not work any more (LEA-007), and all that takes its work from a provider:
jail, suspension and retirement by hand, and `Tend`, by which the node looks after its providers (PRV-002)."""

from __future__ import annotations

from typing import Final

from holdfast.core.event import Decided, Event
from holdfast.core.lease.acts import cancelled
from holdfast.core.lease.record import Leasing
from holdfast.core.provider.acts import HealthMoved, HeartbeatsForgiven, MoveProvider, StakeReleased, Tend
from holdfast.core.provider.decide import is_reason, provider_of
from holdfast.core.provider.health import PUT_OFF_MS, is_too_poor, missed, when_due
from holdfast.core.provider.record import Provider, ProviderAct, ProviderStatus
from holdfast.core.provider.steps import moved, why_not_moved
from holdfast.core.refusal import Refused
from holdfast.core.values import Amount

BLOCKS_MAX: Final = 1_000_000_000
OUSTED: Final = {
    ProviderStatus.JAILED: "PROVIDER_JAILED",
    ProviderStatus.SUSPENDED: "PROVIDER_SUSPENDED",
    ProviderStatus.RETIRED: "PROVIDER_RETIRED",
}
"""Who may not hold leases, and what is said when one is ended for it."""
BY_HAND: Final = frozenset(
    {ProviderAct.JAIL, ProviderAct.UNJAIL, ProviderAct.SUSPEND, ProviderAct.RECOVER, ProviderAct.RETIRE}
)


def ousted(state: Leasing, provider: Provider, after: ProviderStatus, now_ms: int, limit: int) -> list[Event]:
    """LEA-007: its leases end without blame and their jobs wait for others at once.

    What was handed in is left to its verdict: the work is done, and whoever did it is paid.
    """
    reason = OUSTED.get(after)
    if reason is None:
        return []
    live = [lease for lease in state.leases.of(provider.id) if lease.submitted is None]
    return [cancelled(each, reason, now_ms, now_ms) for each in live[:limit]]


def move(state: Leasing, command: MoveProvider, now_ms: int) -> Decided | Refused:
    """PRV-001: a step of the table, by hand; what the provider held goes to others in the same decision."""
    provider = provider_of(state, command.id)
    if isinstance(provider, Refused):
        return provider
    if command.act not in BY_HAND:
        return Refused("PRV-001", f"{command.act} is nobody's to ask for", name="InvalidParams")
    if not is_reason(command.reason):
        return Refused("PRV-001", "reason: at most 200 printable signs", name="InvalidParams")
    if not 0 <= command.blocks <= BLOCKS_MAX:
        return Refused("PRV-001", f"blocks: 0 … {BLOCKS_MAX}", name="InvalidParams")
    if no := why_not_moved(provider, command.act):
        return no
    is_timed = command.act is ProviderAct.JAIL and command.blocks
    until = state.open_height + command.blocks if is_timed else 0
    step = moved(state, provider, command.act, command.reason, command.by, until)
    ends = ousted(state, provider, step.after, now_ms, provider.leases)
    return Decided((step, *_healed(state, provider, command.act, now_ms), *ends))


def _healed(state: Leasing, provider: Provider, act: ProviderAct, now_ms: int) -> list[Event]:
    """Whom an operator takes back gets its chance: else it would be suspended again at once."""
    lacks = state.policy.match.min_health_ppm - provider.health_ppm
    return [HealthMoved(provider.id, lacks, "RECOVERED", now_ms)] if act is ProviderAct.RECOVER and lacks > 0 else []


def tend(state: Leasing, command: Tend, now_ms: int) -> Decided | Refused:
    """PRV-002, LEA-007: whoever is due, each once, in bounded lots."""
    if forgiven := _forgiven(state):
        return Decided(forgiven)
    events: list[Event] = []
    for id_ in list(state.ward.upto(now_ms, state.open_height)):
        if len(events) >= command.limit:
            break
        provider = state.providers[id_]
        found = _tended(state, provider, now_ms, command.limit)
        if not found:
            _put_off(state, provider, now_ms)
        events += found
    return Decided(tuple(events), since=None if events else state.last_event)


def is_due(state: Leasing, now_ms: int) -> bool:
    """Whether `Tend` may find something: for a duty that looks often, and mostly in vain."""
    return bool(_forgiven(state)) or state.ward.is_due(now_ms, state.open_height)


def _forgiven(state: Leasing) -> tuple[HeartbeatsForgiven, ...]:
    """LEA-008: once for each owner that found the journal left alone, before anybody is blamed for that time."""
    owner = state.owner
    if owner is None or not owner.outage_ms or not state.providers or state.forgiven.get(0) == owner.epoch:
        return ()
    stale_ms = state.policy.provider.heartbeat_stale_ms
    return (HeartbeatsForgiven(owner.epoch, owner.outage_ms, owner.at_ms, stale_ms),)


def _tended(state: Leasing, provider: Provider, now_ms: int, limit: int) -> list[Event]:
    """One provider: what is due of it now, the gravest first."""
    policy, status = state.policy, provider.status
    if status in OUSTED and (ends := ousted(state, provider, status, now_ms, limit)):
        return ends
    late = missed(state, provider, now_ms)
    health_ppm = max(0, provider.health_ppm + sum(each.by_ppm for each in late))
    events: list[Event] = [*late, *_released(state, provider, now_ms)]
    if status is ProviderStatus.ACTIVE and (is_too_poor(provider, policy) or health_ppm < policy.match.min_health_ppm):
        step = moved(state, provider, ProviderAct.SUSPEND, f"health {health_ppm} ppm")
        return [*events, step, *ousted(state, provider, step.after, now_ms, provider.leases)]
    if status is ProviderStatus.JAILED and 0 < provider.jailed_until <= state.open_height:
        events.append(moved(state, provider, ProviderAct.UNJAIL, f"until block {provider.jailed_until}"))
    return events


def _released(state: Leasing, provider: Provider, now_ms: int) -> list[Event]:
    """Stake whose lock is over, in blocks and in time."""
    is_locked = state.open_height < provider.unstake_height or now_ms < provider.unstake_ms
    if is_locked or not provider.unstaking:
        return []
    return [StakeReleased(provider.id, Amount(provider.unstaking))]


def _put_off(state: Leasing, provider: Provider, now_ms: int) -> None:
    """Nothing can be done yet: it waits for a verdict, or the index was a little early."""
    due_ms, height = when_due(state, provider)
    if due_ms is not None and due_ms <= now_ms:
        due_ms = now_ms + PUT_OFF_MS
    state.ward.note(provider.id, due_ms, height)
