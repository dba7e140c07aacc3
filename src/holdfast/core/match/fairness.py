"""How much each requester was given lately (MAT-005): a rolling window, where policy sets one, so that all get some.

What was given counts until a time that its event says. So the fold needs no policy, and a window that policy switches
off is forgotten as it rolls.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Final, Protocol

import msgspec

from holdfast.core.event import Event
from holdfast.core.policy import MatchPolicy
from holdfast.core.values import AccountId, Tier


class RequestersCounted(Event, frozen=True, tag=100):
    """What a tick gave each requester counts against it until then."""

    at_ms: int
    until_ms: int
    counts: dict[AccountId, int]


class Window(msgspec.Struct, array_like=True, gc=False):
    """What one requester was given, oldest first: until when it counts, and how many jobs."""

    given: list[tuple[int, int]] = []


class Windowed(Protocol):
    """What is needed of the state."""

    windows: dict[AccountId, Window]


def is_on(policy: MatchPolicy) -> bool:
    return bool(policy.requester_window_ms and policy.requester_window_jobs_max)


def used(windows: dict[AccountId, Window], caller: AccountId, now_ms: int) -> int:
    """How many jobs of this requester count now."""
    window = windows.get(caller)
    return sum(count for until_ms, count in window.given if until_ms > now_ms) if window is not None else 0


def most(tier: Tier, policy: MatchPolicy) -> int | None:
    """How many may count at a time: the knob times the weight of its tier; None where there is no limit."""
    weight = int(getattr(policy, _WEIGHTS[tier]))
    return policy.requester_window_jobs_max * weight if is_on(policy) and weight else None


_WEIGHTS: Final = {
    Tier.FREE: "requester_weight_free",
    Tier.PRO: "requester_weight_pro",
    Tier.PREMIUM: "requester_weight_premium",
}


def why_not_window(
    windows: dict[AccountId, Window], caller: AccountId, tier: Tier, policy: MatchPolicy, now_ms: int
) -> str | None:
    may = most(tier, policy)
    if may is None or (given := used(windows, caller, now_ms)) < may:
        return None
    return f"{caller} was given {given} jobs within {policy.requester_window_ms} ms, at most {may}"


def rolls_ms(windows: dict[AccountId, Window], caller: AccountId, now_ms: int) -> int | None:
    """When the first of what counts now counts no longer."""
    window = windows.get(caller)
    counting = [until_ms for until_ms, _ in window.given if until_ms > now_ms] if window is not None else []
    return min(counting, default=None)


def apply_counted(state: Windowed, event: RequestersCounted) -> None:
    """Windows stand in the order of their last entry, so those that have rolled out are found at the front."""
    windows = state.windows
    over = takewhile(lambda entry: _is_over(entry[1], event.at_ms), windows.items())
    for caller in [caller for caller, _ in over]:
        del windows[caller]
    for caller, count in event.counts.items():
        window = windows.pop(caller, None) or Window()
        kept = [entry for entry in window.given if entry[0] > event.at_ms]
        windows[caller] = Window([*kept, (event.until_ms, count)])


def _is_over(window: Window, now_ms: int) -> bool:
    return all(until_ms <= now_ms for until_ms, _ in window.given)
