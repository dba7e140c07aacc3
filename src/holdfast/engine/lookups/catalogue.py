"""The catalogue: which work is offered, by how many providers, at which prices, and how long such jobs wait now.

Providers are public; nothing of a job is told here but how many wait (JOB-010).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast.core.base.values import Kind, ProviderId
from holdfast.core.match.eligibility import decode_map, lease_cap, why_not_available
from holdfast.core.provider.model import Provider
from holdfast.core.state import State
from holdfast.engine.metrics.event_metrics import metrics_of
from holdfast.engine.queries.query import Query
from holdfast.system.histogram import Histogram

CIRCUITS: Final = "circuit"
NAMES: Final = ("models", "runtimes")
"""Under which words a capability lists its work; what has neither is circuits."""


class Offer(msgspec.Struct):
    """One name of work, and those who offer it now."""

    kind: str
    name: str
    providers: int = 0
    free_slots: int = 0
    price_min: int = 0
    price_max: int = 0
    regions: list[str] = []
    labels: list[str] = []
    """`name=value`, each once."""


class KindWait(msgspec.Struct, frozen=True):
    """How long jobs of a kind wait for their first lease, since this node started."""

    waiting: int
    oldest_ms: int | None
    """When the oldest that is ready was admitted."""
    wait_p50_ms: int | None
    wait_p99_ms: int | None


class StartCatalogue(Query[tuple[list[ProviderId], dict[str, KindWait]]], frozen=True):
    """All providers, and what is known of waiting."""


class AddOffers(Query[list[Offer]], frozen=True):
    """The catalogue with what these providers offer; a few of them at a time."""

    offers: list[Offer]
    provider_ids: tuple[ProviderId, ...]
    now_ms: int


def _start(state: State, _: StartCatalogue) -> tuple[list[ProviderId], dict[str, KindWait]]:
    ready, waits = state.queue.ready_queue, metrics_of(state).wait_ms
    oldest = ready.oldest_ms()
    known = {
        kind.value: KindWait(
            waiting=ready.waiting.get(kind, 0),
            oldest_ms=oldest.get(kind),
            wait_p50_ms=quantile(waits[kind], 50),
            wait_p99_ms=quantile(waits[kind], 99),
        )
        for kind in Kind
    }
    return list(state.providers), known


def _add(state: State, query: AddOffers) -> list[Offer]:
    offers = {(each.kind, each.name): msgspec.structs.replace(each) for each in query.offers}
    for id_ in query.provider_ids:
        provider = state.providers.get(id_)
        if provider is not None and why_not_available(provider, state.policy, query.now_ms) is None:
            free = max(0, lease_cap(provider, state.policy) - provider.leases)
            for kind, name, can in _offered(provider):
                offer = offers.setdefault((kind, name), Offer(kind, name))
                _count(offer, provider, _price(provider, name), free, can)
    return [offers[key] for key in sorted(offers)]


def _offered(provider: Provider) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for kind, can in decode_map(provider.capabilities).items():
        names = next((can[word] for word in NAMES if word in can), [CIRCUITS])
        yield from ((kind, name, can) for name in names)


def _count(offer: Offer, provider: Provider, price: int, free: int, can: dict[str, Any]) -> None:
    offer.price_min = price if not offer.providers else min(offer.price_min, price)
    offer.price_max = max(offer.price_max, price)
    offer.providers += 1
    offer.free_slots += free
    labels = [f"{name}={value}" for name, value in can.get("labels", {}).items()]
    offer.regions = sorted({*offer.regions, *([provider.region] if provider.region else [])})
    offer.labels = sorted({*offer.labels, *labels})


def _price(provider: Provider, name: str) -> int:
    prices = decode_map(provider.prices) if provider.prices else {}
    return int(prices.get(name, provider.price))


def quantile(histogram: Histogram, percent: int) -> int | None:
    """The bound that this percentage of the values does not exceed; None where there is no value, or no bound."""
    wanted, seen = histogram.count * percent, 0
    for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
        seen += count
        if count and seen * 100 >= wanted:
            return bound
    return None


QUERIES: Final = {StartCatalogue: _start, AddOffers: _add}
