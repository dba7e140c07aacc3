"""Queries about providers: who they are, why they get no work, whose key signs, and quotes (JOB-008)."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import EventNo, Kind, ProviderId, TaskId
from holdfast.core.job.model import Job
from holdfast.core.match.eligibility import why_not_available, why_not_eligible
from holdfast.core.provider.decide import kinds_of
from holdfast.core.provider.model import Provider, ProviderStatus, provider_id_of_key, stake_min, why_not_key
from holdfast.core.queue.messages import Enqueue
from holdfast.core.state import State
from holdfast.engine.queries.query import Query, copy_record
from holdfast.engine.queries.quote import Quote, hypothetical_job, quote

PROVIDER_PAGE_BYTES_MAX: Final = 1 << 20
"""Capabilities in one page, as long as there is more than one provider in it."""


class GetProvider(Query[Provider | None], frozen=True):
    """A provider; providers never leave memory."""

    provider_id: ProviderId


class IsProviderKnown(Query[bool], frozen=True):
    """Whether a provider has registered under this id."""

    provider_id: ProviderId


class GetProviderStatus(Query[ProviderStatus | None], frozen=True):
    """The status of a provider."""

    provider_id: ProviderId


class FindProviders(Query[list[ProviderId]], frozen=True):
    """Providers that have this name, else those whose id begins so."""

    text: str
    limit: int


class ProviderView(msgspec.Struct, frozen=True):
    """A provider as it is now, and why it gets no work where it gets none."""

    provider: Provider
    stake_min: int
    why_not: str | None


class GetProviderView(Query[ProviderView | None], frozen=True):
    """A provider with what its stake must be and why it gets no work."""

    provider_id: ProviderId
    now_ms: int


class ProviderPage(msgspec.Struct, frozen=True):
    """Some providers by id, as of an event, and where the next page begins."""

    providers: list[ProviderView]
    as_of: EventNo = EventNo(0)
    next_cursor: bytes | None = None


class ListProviders(Query[ProviderPage], frozen=True):
    """A page of providers by id. It is shorter than `limit` where their capabilities are long."""

    cursor: bytes
    limit: int
    now_ms: int
    status: ProviderStatus | None = None
    kind: Kind | None = None
    region: str | None = None


class HasStake(Query[bool], frozen=True):
    """Whether a provider has put anything at stake."""

    provider_id: ProviderId


class ListListings(Query[dict[str, str]], frozen=True):
    """MAT-002: the operator's verdicts, by `provider:ID` and `region:NAME`."""


class Explanation(msgspec.Struct, frozen=True):
    """MAT-006: the filter that refuses this job to this provider, None where it is eligible."""

    why_not: str | None


class ExplainMatch(Query[Explanation | Refused | None], frozen=True):
    """Why a provider does not get a job; None where memory does not hold the job."""

    provider_id: ProviderId
    task_id: TaskId
    now_ms: int


class ResolvedSigner(msgspec.Struct, frozen=True):
    """Whose key this is, and why it may not sign any more where it may not."""

    provider_id: ProviderId
    refusal: Refused | None


class ResolveSigner(Query[ResolvedSigner], frozen=True):
    """PRV-003: the provider of a public key. A key that replaced another belongs to the same provider."""

    public: bytes


# ------------------------------------------------------------------------------------------------ quotes


class QuoteStart(msgspec.Struct, frozen=True):
    """A quote that has asked no provider yet, and the providers to ask."""

    quote: Quote
    provider_ids: list[ProviderId]


class StartQuote(Query[QuoteStart], frozen=True):
    """Where a job stands or would stand in the queue."""

    job: Job


class ContinueQuote(Query[Quote], frozen=True):
    """A quote extended by some providers; asking all of them takes several queries, so that others get a turn."""

    quote: Quote
    job: Job
    provider_ids: tuple[ProviderId, ...]
    now_ms: int


class GetHypotheticalJob(Query[Job], frozen=True):
    """The job that this command would create."""

    command: Enqueue
    now_ms: int


def _get_provider(state: State, query: GetProvider) -> Provider | None:
    return copy_record(state.providers.get(query.provider_id))


def _is_provider_known(state: State, query: IsProviderKnown) -> bool:
    return query.provider_id in state.providers


def _get_provider_status(state: State, query: GetProviderStatus) -> ProviderStatus | None:
    provider = state.providers.get(query.provider_id)
    return provider.status if provider is not None else None


def _get_provider_view(state: State, query: GetProviderView) -> ProviderView | None:
    provider = state.providers.get(query.provider_id)
    return _view(state, provider, query.now_ms) if provider is not None else None


def _view(state: State, provider: Provider, now_ms: int) -> ProviderView:
    policy = state.policy
    why_not = why_not_available(provider, policy, now_ms) or provider.denied_by_list or None
    stake_required = stake_min(kinds_of(provider.capabilities), policy.provider)
    return ProviderView(msgspec.structs.replace(provider), stake_required, why_not)


def _list_providers(state: State, query: ListProviders) -> ProviderPage:
    matching = sorted(each.id for each in state.providers.values() if each.id > query.cursor and _is_match(each, query))
    page = _within_page_bytes([state.providers[id_] for id_ in matching[: query.limit]])
    views = [_view(state, each, query.now_ms) for each in page]
    return ProviderPage(views, state.last_event, page[-1].id if len(matching) > len(page) else None)


def _is_match(provider: Provider, query: ListProviders) -> bool:
    return (
        (query.status is None or provider.status is query.status)
        and (query.region is None or provider.region == query.region)
        and (query.kind is None or query.kind.value in kinds_of(provider.capabilities))
    )


def _within_page_bytes(providers: list[Provider]) -> list[Provider]:
    """As many of them as keep the answer bounded: capabilities can be long."""
    sizes = accumulate(len(each.capabilities) for each in providers)
    return providers[: max(1, sum(1 for size in sizes if size <= PROVIDER_PAGE_BYTES_MAX))]


def _list_listings(state: State, _: ListListings) -> dict[str, str]:
    return dict(state.listings)


def _has_stake(state: State, query: HasStake) -> bool:
    provider = state.providers.get(query.provider_id)
    return provider is not None and provider.at_stake > 0


def _explain_match(state: State, query: ExplainMatch) -> Explanation | Refused | None:
    provider, job = state.providers.get(query.provider_id), state.queue.jobs.peek(query.task_id)
    if provider is None:
        return Refused("PRV-001", f"no provider {query.provider_id.hex()}", name="NotFound")
    return None if job is None else Explanation(why_not_eligible(state, provider, job, query.now_ms))


def _resolve_signer(state: State, query: ResolveSigner) -> ResolvedSigner:
    id_ = provider_id_of_key(state, query.public)
    return ResolvedSigner(id_, why_not_key(state, id_, query.public))


def _start_quote(state: State, query: StartQuote) -> QuoteStart:
    return QuoteStart(quote(state, query.job), list(state.providers))


def _continue_quote(state: State, query: ContinueQuote) -> Quote:
    asked = query.quote
    extended = msgspec.structs.replace(asked, providers=list(asked.providers), refused=list(asked.refused))
    extended.add_providers(state, (state.providers[id_] for id_ in query.provider_ids), query.job, query.now_ms)
    return extended


def _get_hypothetical_job(state: State, query: GetHypotheticalJob) -> Job:
    return hypothetical_job(state, query.command, query.now_ms)


def _find_providers(state: State, query: FindProviders) -> list[ProviderId]:
    named = [each.id for each in state.providers.values() if each.name == query.text]
    return (named or [id_ for id_ in state.providers if id_.hex().startswith(query.text)])[: query.limit]


QUERIES: Final = {
    FindProviders: _find_providers,
    GetProvider: _get_provider,
    IsProviderKnown: _is_provider_known,
    GetProviderStatus: _get_provider_status,
    GetProviderView: _get_provider_view,
    ListProviders: _list_providers,
    ListListings: _list_listings,
    HasStake: _has_stake,
    ExplainMatch: _explain_match,
    ResolveSigner: _resolve_signer,
    StartQuote: _start_quote,
    ContinueQuote: _continue_quote,
    GetHypotheticalJob: _get_hypothetical_job,
}
