"""Providers at the doors: who they are, how they are, and what they have at stake."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.act import Act
from holdfast.core.match.fit import why_not_fit, why_not_listed
from holdfast.core.provider import acts
from holdfast.core.provider.decide import kinds_of
from holdfast.core.provider.record import Provider, stake_min
from holdfast.core.refusal import Refused
from holdfast.core.state import State
from holdfast.core.values import Amount, ProviderId, TaskId
from holdfast.doors.desk import OPERATORS, Desk, Method, Visitor
from holdfast.doors.methods.money import Done, done
from holdfast.doors.methods.node import Nothing
from holdfast.engine import read


class OneProvider(msgspec.Struct, frozen=True):
    """Which provider."""

    provider_id: ProviderId


class ProviderShown(msgspec.Struct, frozen=True):
    """A provider as it is now, and why it gets no work where it gets none."""

    provider: Provider
    stake_min: int
    why_not: str | None


class Providers(msgspec.Struct, frozen=True):
    """All providers."""

    providers: list[ProviderShown]


class StakeMore(msgspec.Struct, frozen=True):
    """How much more to put at stake; `request` is 32 bytes that name this wish."""

    provider_id: ProviderId
    amount: Amount
    request: bytes


class Pair(msgspec.Struct, frozen=True):
    """Which provider, which job."""

    provider_id: ProviderId
    task_id: TaskId


class WhyNot(msgspec.Struct, frozen=True):
    """MAT-006: the filter that refuses this job to this provider, None where it fits."""

    why_not: str | None


def shown(state: State, provider: Provider, now_ms: int) -> ProviderShown:
    policy = state.policy
    enough = stake_min(kinds_of(provider.capabilities), policy.provider)
    return ProviderShown(msgspec.structs.replace(provider), enough, why_not_listed(provider, policy, now_ms))


async def _list(desk: Desk, _: Visitor, __: Nothing) -> Providers:
    now_ms = desk.source.standing().tip.time_ms
    found = await desk.source.ask(lambda state: [shown(state, each, now_ms) for each in state.providers.values()])
    return Providers(found)


async def _get(desk: Desk, _: Visitor, asked: OneProvider) -> ProviderShown | Refused:
    now_ms = desk.source.standing().tip.time_ms

    def now(state: State) -> ProviderShown | Refused:
        found = state.providers.get(asked.provider_id)
        return shown(state, found, now_ms) if found is not None else _none(asked.provider_id)

    return await desk.source.ask(now)


def _none(id_: ProviderId) -> Refused:
    return Refused("PRV-001", f"no provider {id_.hex()}", name="NotFound")


async def _stake(desk: Desk, visitor: Visitor, asked: StakeMore) -> Done | Refused:
    command = acts.Stake(asked.provider_id, asked.amount, asked.request)
    return done(await desk.submit(Act(visitor.name, "provider.stake", command)))


async def _why_not(desk: Desk, _: Visitor, asked: Pair) -> WhyNot | Refused:
    provider, job = await read.provider(desk.source, asked.provider_id), await read.job(desk.source, asked.task_id)
    if provider is None:
        return _none(asked.provider_id)
    if job is None:
        return Refused("JOB-007", f"no job {asked.task_id.hex()}", name="NotFound")
    policy, now_ms = desk.source.policy, desk.source.standing().tip.time_ms
    return WhyNot(why_not_listed(provider, policy, now_ms) or why_not_fit(provider, job, policy))


METHODS: Final[dict[str, Method]] = {
    "aicf.listProviders": Method("All providers, and why those without work have none.", Nothing, Providers, _list),
    "aicf.getProvider": Method("One provider as it is now.", OneProvider, ProviderShown, _get),
    "provider.stake": Method(
        "Put money of a provider's account at stake.", StakeMore, Done, _stake, OPERATORS, is_write=True
    ),
    "provider.whyNot": Method("Which filter refuses a job to a provider.", Pair, WhyNot, _why_not),
}
