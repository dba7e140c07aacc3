"""How many jobs of each requester were assigned lately (MAT-005): a rolling window, where policy sets one.

Assigned jobs count until the time in their event. So applying events needs no policy, and a window that policy switches
off empties itself.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Final, Protocol

import msgspec

from holdfast.core.base.values import AccountId, Tier
from holdfast.core.match.messages import RequestersCounted
from holdfast.core.policy import MatchPolicy


class RequesterWindow(msgspec.Struct, array_like=True, gc=False):
    """The assigned jobs of one requester, oldest first: until when they count, and how many."""

    entries: list[tuple[int, int]] = []


class HasWindows(Protocol):
    """The parts of the state that this module reads and changes."""

    requester_windows: dict[AccountId, RequesterWindow]


def is_on(policy: MatchPolicy) -> bool:
    return bool(policy.requester_window_ms and policy.requester_window_jobs_max)


def jobs_in_window(windows: dict[AccountId, RequesterWindow], caller: AccountId, now_ms: int) -> int:
    """How many jobs of this requester count now."""
    return sum(count for _, count in _counting(windows, caller, now_ms))


def jobs_max(tier: Tier, policy: MatchPolicy) -> int | None:
    """How many may count at a time: the setting times the weight of its tier; None where there is no limit."""
    weight = int(getattr(policy, _WEIGHTS[tier]))
    return policy.requester_window_jobs_max * weight if is_on(policy) and weight else None


_WEIGHTS: Final = {
    Tier.FREE: "requester_weight_free",
    Tier.PRO: "requester_weight_pro",
    Tier.PREMIUM: "requester_weight_premium",
}


def why_not_window(
    windows: dict[AccountId, RequesterWindow], caller: AccountId, tier: Tier, policy: MatchPolicy, now_ms: int
) -> str | None:
    limit = jobs_max(tier, policy)
    if limit is None or (count := jobs_in_window(windows, caller, now_ms)) < limit:
        return None
    return f"{caller} was given {count} jobs within {policy.requester_window_ms} ms, at most {limit}"


def next_roll_ms(windows: dict[AccountId, RequesterWindow], caller: AccountId, now_ms: int) -> int | None:
    """When the first job that counts now stops counting."""
    return min((until_ms for until_ms, _ in _counting(windows, caller, now_ms)), default=None)


def _counting(windows: dict[AccountId, RequesterWindow], caller: AccountId, now_ms: int) -> list[tuple[int, int]]:
    window = windows.get(caller)
    return [entry for entry in window.entries if entry[0] > now_ms] if window is not None else []


def apply_counted(state: HasWindows, event: RequestersCounted) -> None:
    """Windows are in the order of their last entry, so the empty ones are at the front."""
    windows = state.requester_windows
    for caller in list(takewhile(lambda caller: not _counting(windows, caller, event.at_ms), windows)):
        del windows[caller]
    for caller, count in event.counts.items():
        counting = _counting(windows, caller, event.at_ms)
        windows.pop(caller, None)  # the last entry is new: it goes to the end
        windows[caller] = RequesterWindow([*counting, (event.until_ms, count)])
