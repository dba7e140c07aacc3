"""Methods about the policy that counts (PRI-003): which one it is, adopting another, and all that counted before."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.api.node_access import OPERATORS, READERS, NodeAccess, RpcCall, RpcMethod
from holdfast.api.rpc.paging import why_not_limit
from holdfast.api.rpc.params import NoParams
from holdfast.api.rpc.privileged import CommandResult, command_result, submit_privileged
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import EventNo
from holdfast.core.policy import Policy, flatten, policy_differences, settings_of
from holdfast.core.policy.limits import check_policy
from holdfast.core.policy_change.messages import AdoptPolicy
from holdfast.core.policy_change.model import read_policy
from holdfast.engine import queries
from holdfast.engine.queries.node import AdoptedPolicy, GetPolicy
from holdfast.system.did_you_mean import did_you_mean


class ApplyPolicyParams(msgspec.Struct, frozen=True):
    """The settings that count from now on, as nested objects; one that is not named has the network's default."""

    policy: dict[str, Any]


class PolicyHistoryParams(msgspec.Struct, frozen=True):
    """How many adoptions, the newest first; a next page begins at `cursor`."""

    limit: int = 100
    cursor: EventNo = EventNo(0)


class AdoptionView(msgspec.Struct, frozen=True):
    """A policy that was adopted: when, by whom, and what it changed."""

    event: EventNo
    at_ms: int
    by: str
    changes: dict[str, tuple[Any, Any]]
    """Path of each setting that changed: its value before and after. Empty for the first one."""


class PolicyHistory(msgspec.Struct, frozen=True):
    """Adopted policies, the newest first."""

    adoptions: list[AdoptionView]
    next_cursor: EventNo | None


async def _get(access: NodeAccess, _: RpcCall, __: NoParams) -> AdoptedPolicy:
    return await access.source.query_durable(GetPolicy())


async def _apply(access: NodeAccess, call: RpcCall, params: ApplyPolicyParams) -> CommandResult | Refused:
    policy = read_settings(access.source.policy, params.policy)
    if isinstance(policy, Refused):
        return policy
    return command_result(await submit_privileged(access, call, AdoptPolicy(policy, call.principal.name)))


def read_settings(adopted: Policy, given: dict[str, Any]) -> Policy | Refused:
    """The policy with these settings over the network's defaults, or everything that is wrong with them (SEC-001)."""
    network, chain_id = given.get("network", adopted.network), given.get("chain_id", adopted.chain_id)
    if (network, chain_id) != (adopted.network, adopted.chain_id):
        message = f"this is chain {adopted.chain_id} of a {adopted.network} network"
        return Refused("ESC-003", message, "network and chain_id never change", "InvalidParams")
    base = Policy.for_network(adopted.network, adopted.chain_id)
    known, leaves = settings_of(base), flatten(given)
    if unknown := [path for path, _ in leaves if path not in known]:
        hint = did_you_mean(unknown[0], list(known), otherwise="`holdfast policy show` lists them")
        return Refused("SEC-001", f"policy.{unknown[0]:.80}: no such setting", hint, "InvalidParams")
    values: dict[str, Any] = msgspec.to_builtins(base)
    for path, value in leaves:
        group, _, name = path.rpartition(".")
        (values[group] if group else values)[name] = value
    try:
        policy = msgspec.convert(values, Policy)
    except msgspec.ValidationError as fault:
        return Refused("SEC-001", f"policy: {fault!s:.200}", name="InvalidParams")
    faults = "; ".join(f"policy.{fault.path}: {fault.message}" for fault in check_policy(policy))
    return Refused("SEC-001", faults, name="InvalidParams") if faults else policy


async def _history(access: NodeAccess, _: RpcCall, params: PolicyHistoryParams) -> PolicyHistory | Refused:
    if refusal := why_not_limit(params.limit):
        return refusal
    newest = params.cursor or (await access.source.query_durable(GetPolicy())).event
    found = await queries.adoptions(access.source, newest, params.limit + 1)
    policies = [read_policy(adopted.policy) for _, adopted in found]
    adoptions = [
        AdoptionView(number, adopted.at_ms, adopted.by, policy_differences(before, policies[at]) if before else {})
        for at, (number, adopted) in enumerate(found[: params.limit])
        for before in [policies[at + 1] if at + 1 < len(policies) else None]
    ]
    return PolicyHistory(adoptions, found[-1][0] if len(found) > params.limit else None)


METHODS: Final[dict[str, RpcMethod]] = {
    "policy.getPolicy": RpcMethod("The policy that counts.", NoParams, AdoptedPolicy, _get, READERS),
    "policy.apply": RpcMethod(
        "Adopt a policy, at once and without a restart.",
        ApplyPolicyParams,
        CommandResult,
        _apply,
        OPERATORS,
        is_write=True,
    ),
    "policy.listHistory": RpcMethod(
        "Policies that were adopted, the newest first.", PolicyHistoryParams, PolicyHistory, _history, READERS
    ),
}
