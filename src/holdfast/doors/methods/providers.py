"""Providers at the doors: who they are, how they are, what they have at stake, and what operators do about them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final

import msgspec

from holdfast.core import law
from holdfast.core.act import Act
from holdfast.core.key import Role
from holdfast.core.match.fit import why_not, why_not_listed
from holdfast.core.provider import acts
from holdfast.core.provider.decide import kinds_of
from holdfast.core.provider.moves import ALLOW, DENY
from holdfast.core.provider.record import Provider, ProviderAct, ProviderStatus, stake_min
from holdfast.core.refusal import Refused
from holdfast.core.state import State
from holdfast.core.values import Amount, EventNo, Kind, ProviderId, TaskId
from holdfast.doors.desk import OPERATORS, READERS, Desk, Method, Visitor
from holdfast.doors.methods.money import Done, done
from holdfast.doors.methods.node import Nothing
from holdfast.doors.pages import why_not_limit
from holdfast.engine import read

PAGE_BYTES_MAX: Final = 1 << 20
OWNERS: Final = frozenset({Role.PROVIDER, Role.OPERATOR})
"""Operators for all; the holder of a provider's key of the API for the providers of its account."""


class OneProvider(msgspec.Struct, frozen=True):
    """Which provider."""

    provider_id: ProviderId


class ProviderShown(msgspec.Struct, frozen=True):
    """A provider as it is now, and why it gets no work where it gets none."""

    provider: Provider
    stake_min: int
    why_not: str | None


class ManyProviders(msgspec.Struct, frozen=True):
    """A page of providers by id, filtered where asked; `cursor` is the last page's `next_cursor`.

    A page can be shorter than `limit` where providers have much to say; there are more while there is a cursor.
    """

    status: ProviderStatus | None = None
    kind: Kind | None = None
    region: str | None = None
    limit: int = 100
    cursor: bytes = b""


class Providers(msgspec.Struct, frozen=True):
    """Some providers by id, as of an event, and where the next page begins."""

    providers: list[ProviderShown]
    as_of: EventNo = EventNo(0)
    next_cursor: bytes | None = None


class StakeMore(msgspec.Struct, frozen=True):
    """How much more to put at stake; `request` is 32 bytes that name this wish."""

    provider_id: ProviderId
    amount: Amount
    request: bytes


class StakeLess(msgspec.Struct, frozen=True):
    """How much to take back from the stake; `request` is 32 bytes that name this wish."""

    provider_id: ProviderId
    amount: Amount
    request: bytes


class Because(msgspec.Struct, frozen=True):
    """Which provider, and why; the reason is kept."""

    provider_id: ProviderId
    reason: str = ""


class JailFor(msgspec.Struct, frozen=True):
    """For how many blocks, 0 for good, and why."""

    provider_id: ProviderId
    blocks: int = 0
    reason: str = ""


class Whom(msgspec.Struct, frozen=True):
    """A provider or a region, one of them, and why."""

    provider_id: ProviderId = ProviderId(b"")
    region: str = ""
    reason: str = ""


class Lists(msgspec.Struct, frozen=True):
    """What the operator allows and denies, by `provider:ID` and `region:NAME`."""

    allowed: list[str]
    denied: list[str]


class Pair(msgspec.Struct, frozen=True):
    """Which provider, which job."""

    provider_id: ProviderId
    task_id: TaskId


class WhyNot(msgspec.Struct, frozen=True):
    """MAT-006: the filter that refuses this job to this provider, None where it fits."""

    why_not: str | None


# ------------------------------------------------------------------------------------------------ reading


def shown(state: State, provider: Provider, now_ms: int) -> ProviderShown:
    policy = state.policy
    enough = stake_min(kinds_of(provider.capabilities), policy.provider)
    no = why_not_listed(provider, policy, now_ms) or provider.barred or None
    return ProviderShown(msgspec.structs.replace(provider), enough, no)


async def _list(desk: Desk, _: Visitor, asked: ManyProviders) -> Providers | Refused:
    if no := why_not_limit(asked.limit):
        return no
    now_ms = desk.source.standing().tip.time_ms

    def page(state: State) -> Providers:
        fit = sorted(each.id for each in state.providers.values() if each.id > asked.cursor and _is_asked(each, asked))
        taken = _a_page([state.providers[id_] for id_ in fit[: asked.limit]])
        found = [shown(state, each, now_ms) for each in taken]
        return Providers(found, state.last_event, taken[-1].id if len(fit) > len(taken) else None)

    return await desk.source.ask(page)


def _a_page(fit: list[Provider]) -> list[Provider]:
    """As many of them as make no endless answer: what providers say they can run is as long as they like it."""
    ends = accumulate(len(each.capabilities) for each in fit)
    return fit[: max(1, sum(1 for end in ends if end <= PAGE_BYTES_MAX))]


def _is_asked(provider: Provider, asked: ManyProviders) -> bool:
    return (
        (asked.status is None or provider.status is asked.status)
        and (asked.region is None or provider.region == asked.region)
        and (asked.kind is None or asked.kind.value in kinds_of(provider.capabilities))
    )


async def _get(desk: Desk, _: Visitor, asked: OneProvider) -> ProviderShown | Refused:
    now_ms = desk.source.standing().tip.time_ms

    def now(state: State) -> ProviderShown | Refused:
        found = state.providers.get(asked.provider_id)
        return shown(state, found, now_ms) if found is not None else _none(asked.provider_id)

    return await desk.source.ask(now)


def _none(id_: ProviderId) -> Refused:
    return Refused("PRV-001", f"no provider {id_.hex()}", name="NotFound")


async def _lists(desk: Desk, _: Visitor, __: Nothing) -> Lists:
    found = await desk.source.ask(lambda state: dict(state.listings))
    return Lists(*(sorted(name for name, each in found.items() if each == verdict) for verdict in (ALLOW, DENY)))


async def _why_not(desk: Desk, _: Visitor, asked: Pair) -> WhyNot | Refused:
    now_ms = desk.source.standing().tip.time_ms

    def now(state: State) -> WhyNot | Refused | None:
        provider, job = state.providers.get(asked.provider_id), state.queue.jobs.get(asked.task_id)
        if provider is None:
            return _none(asked.provider_id)
        return None if job is None else WhyNot(why_not(state, provider, job, now_ms))

    found = await desk.source.ask(now)
    if found is not None:
        return found
    job = await read.job(desk.source, asked.task_id)
    if job is None:
        return Refused("JOB-007", f"no job {asked.task_id.hex()}", name="NotFound")
    return WhyNot(f"the job is {job.state}")


# ------------------------------------------------------------------------------------------------ changing

Make = Callable[[Any, str], law.Command]
"""What was asked and who asks, to the command."""


def _write(
    name: str, says: str, params: type[Any], make: Make, roles: frozenset[Role] = OPERATORS
) -> tuple[str, Method]:
    """A privileged command (SEC-001): it stands in the journal behind the name of whoever asked."""

    async def handle(desk: Desk, visitor: Visitor, asked: Any) -> Done | Refused:
        if visitor.role is Role.PROVIDER and (no := await _why_not_theirs(desk, visitor, asked.provider_id)):
            return no
        return done(await desk.submit(Act(visitor.name, name, make(asked, visitor.name))))

    return name, Method(says, params, Done, handle, roles, is_write=True)


async def _why_not_theirs(desk: Desk, visitor: Visitor, id_: ProviderId) -> Refused | None:
    provider = await read.provider(desk.source, id_)
    if provider is None:
        return _none(id_)
    if visitor.account == provider.account:
        return None
    return Refused("SEC-001", f"this key is {visitor.account}'s, not {provider.account}'s", name="Forbidden")


def _move(act: ProviderAct) -> Make:
    return lambda asked, by: acts.MoveProvider(asked.provider_id, act, by, asked.reason, getattr(asked, "blocks", 0))


def _drain(is_draining: bool) -> Make:
    return lambda asked, by: acts.Drain(asked.provider_id, is_draining, by, asked.reason)


def _listed(name: str, says: str, verdict: str) -> tuple[str, Method]:
    async def handle(desk: Desk, visitor: Visitor, asked: Whom) -> Done | Refused:
        if bool(asked.provider_id) == bool(asked.region):
            return Refused("MAT-002", "params: provider_id or region: name one of them", name="InvalidParams")
        whom = f"provider:{asked.provider_id.hex()}" if asked.provider_id else f"region:{asked.region}"
        command = acts.List(whom, verdict, visitor.name, asked.reason)
        return done(await desk.submit(Act(visitor.name, name, command)))

    return name, Method(says, Whom, Done, handle, OPERATORS, is_write=True)


def _stake(asked: StakeMore, _: str) -> acts.Stake:
    return acts.Stake(asked.provider_id, asked.amount, asked.request)


def _unstake(asked: StakeLess, by: str) -> acts.Unstake:
    return acts.Unstake(asked.provider_id, asked.amount, asked.request, by)


METHODS: Final[dict[str, Method]] = dict[str, Method](
    [
        (
            "aicf.listProviders",
            Method("Providers by id, and why those without work have none.", ManyProviders, Providers, _list),
        ),
        ("aicf.getProvider", Method("One provider as it is now.", OneProvider, ProviderShown, _get)),
        ("provider.whyNot", Method("Which filter refuses a job to a provider.", Pair, WhyNot, _why_not)),
        ("provider.lists", Method("Who is allowed and who is denied.", Nothing, Lists, _lists, READERS)),
        _write("provider.stake", "Put money of a provider's account at stake.", StakeMore, _stake, OWNERS),
        _write("provider.unstake", "Take money back from a stake, once its lock is over.", StakeLess, _unstake, OWNERS),
        _write("provider.drain", "Give a provider no new work.", Because, _drain(True), OWNERS),
        _write("provider.undrain", "Give a provider work again.", Because, _drain(False), OWNERS),
        _write("provider.retire", "Let a provider go for good.", Because, _move(ProviderAct.RETIRE), OWNERS),
        _write("provider.jail", "Jail a provider; its leases go to others.", JailFor, _move(ProviderAct.JAIL)),
        _write("provider.unjail", "Let a provider out of jail.", Because, _move(ProviderAct.UNJAIL)),
        _write("provider.suspend", "Suspend a provider until it is taken back.", Because, _move(ProviderAct.SUSPEND)),
        _write("provider.recover", "Take a suspended provider back.", Because, _move(ProviderAct.RECOVER)),
        _listed("provider.allow", "Allow a provider or a region; others then get no work.", ALLOW),
        _listed("provider.deny", "Deny a provider or a region all work.", DENY),
        _listed("provider.unlist", "Take a provider or a region off the lists.", ""),
    ]
)
