"""Methods about providers: their status and stake, why they get no work, and what operators and owners change."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.api.node_access import OPERATORS, READERS, NodeAccess, Principal, RpcCall, RpcMethod, why_not_own
from holdfast.api.rpc.paging import why_not_limit
from holdfast.api.rpc.params import NoParams
from holdfast.api.rpc.privileged import BuildCommand, CommandResult, privileged_handler
from holdfast.api.visibility import why_not_read
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Amount, Kind, ProviderId, TaskId
from holdfast.core.key.model import Role
from holdfast.core.provider import messages
from holdfast.core.provider.model import ProviderStatus, ProviderTransition
from holdfast.core.provider.operator_actions import ALLOW, DENY
from holdfast.engine import queries
from holdfast.engine.queries.providers import (
    ExplainMatch,
    Explanation,
    GetProvider,
    GetProviderView,
    ListListings,
    ListProviders,
    ProviderPage,
    ProviderView,
)

PROVIDER_OWNERS: Final = frozenset({Role.PROVIDER, Role.OPERATOR})
"""Operators for all providers; a key with the role provider for the providers of its account."""


class ProviderParams(msgspec.Struct, frozen=True):
    """Which provider."""

    provider_id: ProviderId


class ListProvidersParams(msgspec.Struct, frozen=True):
    """A page of providers by id, filtered where given; `cursor` is the last page's `next_cursor`.

    A page can be shorter than `limit` where capabilities are long; there are more while there is a cursor.
    """

    status: ProviderStatus | None = None
    kind: Kind | None = None
    region: str | None = None
    limit: int = 100
    cursor: bytes = b""


class InviteParams(msgspec.Struct, frozen=True):
    """The hash of the invitation, which covers when it ends: at most seven days from now."""

    invitation: bytes
    expires_ms: int


class StakeParams(msgspec.Struct, frozen=True):
    """How much to add to the stake; `request` is 32 bytes that identify this request."""

    provider_id: ProviderId
    amount: Amount
    request: bytes


class UnstakeParams(msgspec.Struct, frozen=True):
    """How much to withdraw from the stake; `request` is 32 bytes that identify this request."""

    provider_id: ProviderId
    amount: Amount
    request: bytes


class ReasonParams(msgspec.Struct, frozen=True):
    """Which provider, and the reason, which is recorded."""

    provider_id: ProviderId
    reason: str = ""


class JailParams(msgspec.Struct, frozen=True):
    """Which provider, for how many blocks (0 is for good), and the reason."""

    provider_id: ProviderId
    blocks: int = 0
    reason: str = ""


class ListingParams(msgspec.Struct, frozen=True):
    """A provider or a region, one of them, and the reason."""

    provider_id: ProviderId = ProviderId(b"")
    region: str = ""
    reason: str = ""


class ListingRules(msgspec.Struct, frozen=True):
    """What the operator allows and denies, by `provider:ID` and `region:NAME`."""

    allowed: list[str]
    denied: list[str]


class ExplainParams(msgspec.Struct, frozen=True):
    """Which provider, which job."""

    provider_id: ProviderId
    task_id: TaskId


# ------------------------------------------------------------------------------------------------ reading


async def _list(access: NodeAccess, _: RpcCall, params: ListProvidersParams) -> ProviderPage | Refused:
    if refusal := why_not_limit(params.limit):
        return refusal
    return await access.source.query_durable(
        ListProviders(
            cursor=params.cursor,
            limit=params.limit,
            now_ms=access.source.replication_status().tip.time_ms,
            status=params.status,
            kind=params.kind,
            region=params.region,
        )
    )


async def _get(access: NodeAccess, _: RpcCall, params: ProviderParams) -> ProviderView | Refused:
    now_ms = access.source.replication_status().tip.time_ms
    view = await access.source.query_durable(GetProviderView(params.provider_id, now_ms))
    return view or _no_provider(params.provider_id)


def _no_provider(id_: ProviderId) -> Refused:
    return Refused("PRV-001", f"no provider {id_.hex()}", name="NotFound")


async def _list_rules(access: NodeAccess, _: RpcCall, __: NoParams) -> ListingRules:
    verdicts = await access.source.query_durable(ListListings())
    return ListingRules(
        allowed=sorted(name for name, verdict in verdicts.items() if verdict == ALLOW),
        denied=sorted(name for name, verdict in verdicts.items() if verdict == DENY),
    )


async def _explain(access: NodeAccess, call: RpcCall, params: ExplainParams) -> Explanation | Refused:
    job = await queries.job(access.source, params.task_id)
    if job is None:
        return Refused("JOB-007", f"no job {params.task_id.hex()}", name="NotFound")
    if refusal := why_not_read(call.principal, job, "what is required"):
        return refusal
    now_ms = access.source.replication_status().tip.time_ms
    explanation = await access.source.query_durable(ExplainMatch(params.provider_id, params.task_id, now_ms))
    return explanation or Explanation(f"the job is {job.state}")


# ------------------------------------------------------------------------------------------------ changing


def _privileged_method(summary: str, params: type[msgspec.Struct], build_command: BuildCommand) -> RpcMethod:
    """A method for operators."""
    return RpcMethod(summary, params, CommandResult, privileged_handler(build_command), OPERATORS, is_write=True)


def _owner_method(summary: str, params: type[msgspec.Struct], build_command: BuildCommand) -> RpcMethod:
    """A method for operators, and for the account that a provider belongs to."""
    handle = privileged_handler(build_command, _why_not_own_provider)
    return RpcMethod(summary, params, CommandResult, handle, PROVIDER_OWNERS, is_write=True)


async def _why_not_own_provider(access: NodeAccess, principal: Principal, params: Any) -> Refused | None:
    if principal.role is not Role.PROVIDER:
        return None
    provider = await access.source.query_durable(GetProvider(params.provider_id))
    return _no_provider(params.provider_id) if provider is None else why_not_own(principal, provider.account)


def _change_status(transition: ProviderTransition) -> BuildCommand:
    def build(params: ReasonParams | JailParams, principal: Principal) -> messages.ChangeStatus:
        blocks = params.blocks if isinstance(params, JailParams) else 0
        return messages.ChangeStatus(params.provider_id, transition, principal.name, params.reason, blocks)

    return build


def _drain(is_draining: bool) -> BuildCommand:
    def build(params: ReasonParams, principal: Principal) -> messages.Drain:
        return messages.Drain(params.provider_id, is_draining, principal.name, params.reason)

    return build


def _set_listing(verdict: str) -> BuildCommand:
    def build(params: ListingParams, principal: Principal) -> messages.SetListing | Refused:
        if bool(params.provider_id) == bool(params.region):
            return Refused("MAT-002", "params: provider_id or region: name one of them", name="InvalidParams")
        subject = f"provider:{params.provider_id.hex()}" if params.provider_id else f"region:{params.region}"
        return messages.SetListing(subject, verdict, principal.name, params.reason)

    return build


def _invite(params: InviteParams, principal: Principal) -> messages.InviteProvider:
    return messages.InviteProvider(params.invitation, params.expires_ms, principal.name)


def _stake(params: StakeParams, _: Principal) -> messages.Stake:
    return messages.Stake(params.provider_id, params.amount, params.request)


def _unstake(params: UnstakeParams, principal: Principal) -> messages.Unstake:
    return messages.Unstake(params.provider_id, params.amount, params.request, principal.name)


METHODS: Final[dict[str, RpcMethod]] = {
    "aicf.listProviders": RpcMethod(
        "Providers by id, and why those without work get none.", ListProvidersParams, ProviderPage, _list
    ),
    "aicf.getProvider": RpcMethod("One provider as it is now.", ProviderParams, ProviderView, _get),
    "provider.explain": RpcMethod("Which filter refuses a job to a provider.", ExplainParams, Explanation, _explain),
    "provider.listRules": RpcMethod(
        "Which providers and regions are allowed and denied.", NoParams, ListingRules, _list_rules, READERS
    ),
    "provider.invite": _privileged_method("Invite a provider: a token for one use.", InviteParams, _invite),
    "provider.stake": _owner_method("Add money of a provider's account to its stake.", StakeParams, _stake),
    "provider.unstake": _owner_method("Withdraw money from a stake, once its lock is over.", UnstakeParams, _unstake),
    "provider.drain": _owner_method("Give a provider no new work.", ReasonParams, _drain(True)),
    "provider.undrain": _owner_method("Give a drained provider work again.", ReasonParams, _drain(False)),
    "provider.retire": _owner_method(
        "Retire a provider for good.", ReasonParams, _change_status(ProviderTransition.RETIRE)
    ),
    "provider.jail": _privileged_method(
        "Jail a provider; its jobs are requeued.", JailParams, _change_status(ProviderTransition.JAIL)
    ),
    "provider.unjail": _privileged_method(
        "Release a provider from jail.", ReasonParams, _change_status(ProviderTransition.UNJAIL)
    ),
    "provider.suspend": _privileged_method(
        "Suspend a provider until an operator recovers it.", ReasonParams, _change_status(ProviderTransition.SUSPEND)
    ),
    "provider.recover": _privileged_method(
        "Recover a suspended provider.", ReasonParams, _change_status(ProviderTransition.RECOVER)
    ),
    "provider.allow": _privileged_method(
        "Allow a provider or a region; all others then get no work.", ListingParams, _set_listing(ALLOW)
    ),
    "provider.deny": _privileged_method("Deny a provider or a region all work.", ListingParams, _set_listing(DENY)),
    "provider.unsetRule": _privileged_method(
        "Remove the rule of a provider or a region.", ListingParams, _set_listing("")
    ),
}
