"""Methods for people who look around: ids by their beginning, the catalogue, the state of the network at a glance."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from holdfast.api.node_access import READERS, NodeAccess, RpcCall, RpcMethod
from holdfast.api.rpc.params import NoParams
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import ProviderId, TaskId
from holdfast.engine.lookups.abbreviations import ID_DIGITS, jobs_beginning_with
from holdfast.engine.lookups.catalogue import AddOffers, KindWait, Offer, StartCatalogue
from holdfast.engine.queries.metrics import GetQueueMetrics
from holdfast.engine.queries.providers import FindProviders

DIGITS_MIN: Final = 4
PROVIDERS_PER_TURN: Final = 500
NAMED_MAX: Final = 8
"""How many candidates of an ambiguous abbreviation are named."""
_HEX: Final = re.compile(r"[0-9a-f]+")


class FindParams(msgspec.Struct, frozen=True):
    """The beginning of an id in hex, at least four digits; of a provider also its name."""

    text: str


class FoundJob(msgspec.Struct, frozen=True):
    """The one job whose id begins so."""

    task_id: TaskId


class FoundProvider(msgspec.Struct, frozen=True):
    """The one provider that is meant."""

    provider_id: ProviderId


class Catalogue(msgspec.Struct, frozen=True):
    """What is offered now, by kind and name, and how long jobs of each kind wait."""

    offers: list[Offer]
    waits: dict[str, KindWait]
    time_ms: int


class Activity(msgspec.Struct, frozen=True):
    """What has happened since this node started, by what it was and by kind or code."""

    counts: dict[str, dict[str, int]]
    waits: dict[str, KindWait]
    time_ms: int


async def _catalogue(access: NodeAccess, _: RpcCall, __: NoParams) -> Catalogue:
    """A few providers at a time, so that others are answered in between."""
    source, now_ms = access.source, access.source.now_ms()
    ids, waits = await source.query_durable(StartCatalogue())
    offers: list[Offer] = []
    for first in range(0, len(ids), PROVIDERS_PER_TURN):
        some = tuple(ids[first : first + PROVIDERS_PER_TURN])
        offers = await source.query_durable(AddOffers(offers, some, now_ms))
    return Catalogue(offers, waits, now_ms)


async def _activity(access: NodeAccess, _: RpcCall, __: NoParams) -> Activity:
    source = access.source
    view = await source.query_durable(GetQueueMetrics())
    _providers, waits = await source.query_durable(StartCatalogue())
    counts: dict[str, dict[str, int]] = {}
    for (name, label), count in sorted(view.metrics.counts.items()):
        counts.setdefault(name, {})[label] = count
    return Activity(counts, waits, source.now_ms())


async def _find_job(access: NodeAccess, _: RpcCall, params: FindParams) -> FoundJob | Refused:
    """JOB-010: a job's id is public; nothing else is told here."""
    if not _HEX.fullmatch(params.text) or not DIGITS_MIN <= len(params.text) <= ID_DIGITS:
        message = f"{params.text!r:.80} is not the beginning of a task id"
        return Refused("JOB-001", message, f"{DIGITS_MIN} to {ID_DIGITS} hexadecimal digits", "InvalidParams")
    found = await jobs_beginning_with(access.source, params.text, NAMED_MAX + 1)
    return FoundJob(found[0]) if len(found) == 1 else _refuse("job", params.text, [id_.hex() for id_ in found])


async def _find_provider(access: NodeAccess, _: RpcCall, params: FindParams) -> FoundProvider | Refused:
    found = await access.source.query_durable(FindProviders(params.text, NAMED_MAX + 1))
    ids = [id_.hex() for id_ in found]
    return FoundProvider(found[0]) if len(found) == 1 else _refuse("provider", params.text, ids)


def _refuse(what: str, text: str, ids: list[str]) -> Refused:
    if not ids:
        return Refused("RPC-001", f"no {what} {text!r:.80}", f"`holdfast {what} list` shows them", "NotFound")
    count = f"more than {NAMED_MAX}" if len(ids) > NAMED_MAX else str(len(ids))
    hint = ", ".join(ids[:NAMED_MAX])
    return Refused("RPC-001", f"{text!r:.80} is the beginning of {count} {what}s", hint, "Ambiguous")


METHODS: Final[dict[str, RpcMethod]] = {
    "aicf.listOffers": RpcMethod(
        "What providers offer now, at which prices, and how long jobs wait.", NoParams, Catalogue, _catalogue
    ),
    "queue.getActivity": RpcMethod(
        "What happened in the queue since this node started.", NoParams, Activity, _activity, READERS
    ),
    "cap.findJob": RpcMethod("A job by the beginning of its id.", FindParams, FoundJob, _find_job),
    "aicf.findProvider": RpcMethod(
        "A provider by its name or the beginning of its id.", FindParams, FoundProvider, _find_provider
    ),
}
