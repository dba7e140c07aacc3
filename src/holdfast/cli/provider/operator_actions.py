"""`holdfast provider drain | undrain | retire | jail | unjail | suspend | recover`: change a provider's status."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli.provider.show import ProviderArgument
from holdfast.cli.terminal.node_client import NodeSession, run_on_node
from holdfast.cli.terminal.options import Json, NodeAddress, Yes, on_node
from holdfast.cli.terminal.reporting import confirm
from holdfast.cli.terminal.tables import pluralize, print_outcome

Reason = Annotated[str, typer.Option(help="Why; recorded in the journal.")]


def _change_status(address: NodeAddress, method: str, provider_id: str, *, as_json: bool, **params: object) -> None:
    async def change_and_read(node: NodeSession) -> Any:
        answer = await node.call(f"provider.{method}", provider_id=provider_id, **params)
        return answer, (await node.call("aicf.getProvider", provider_id=provider_id))["provider"]

    answer, provider = run_on_node(address, change_and_read)
    event = "unchanged" if answer["is_repeat"] else f"event {answer['event']}"
    draining = ", draining" if provider["is_draining"] else ""
    until = f" until block {provider['jailed_until']}" if provider["jailed_until"] else ""
    leases = f"; it still has {pluralize(provider['leases'], 'lease')}" if provider["leases"] else ""
    outcome = f"{provider['name']} is {provider['status']}{until}{draining} ({event}){leases}"
    print_outcome({**answer, "provider": provider}, outcome, as_json=as_json)


@on_node
def drain(
    address: NodeAddress,
    provider: ProviderArgument,
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Assign no new jobs to a provider; it finishes its leases."""
    _change_status(address, "drain", provider, reason=reason, as_json=as_json)


@on_node
def undrain(
    address: NodeAddress,
    provider: ProviderArgument,
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Assign jobs to a provider again."""
    _change_status(address, "undrain", provider, reason=reason, as_json=as_json)


@on_node
def retire(
    address: NodeAddress,
    provider: ProviderArgument,
    reason: Reason = "",
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Retire a provider for good. Its leases are revoked; its stake can then be withdrawn."""
    confirm(f"Retire provider {provider} for good?", "PRV-001", yes=yes)
    _change_status(address, "retire", provider, reason=reason, as_json=as_json)


@on_node
def jail(
    address: NodeAddress,
    provider: ProviderArgument,
    blocks: Annotated[int, typer.Option(min=0, help="For how many blocks; 0: until `unjail`.")] = 0,
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Jail a provider. Its leases are revoked; the jobs are requeued without a failure."""
    _change_status(address, "jail", provider, blocks=blocks, reason=reason, as_json=as_json)


@on_node
def unjail(
    address: NodeAddress,
    provider: ProviderArgument,
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Release a provider from jail; its next heartbeat can make it active again."""
    _change_status(address, "unjail", provider, reason=reason, as_json=as_json)


@on_node
def suspend(
    address: NodeAddress,
    provider: ProviderArgument,
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Suspend a provider until `recover`. Its leases are revoked."""
    _change_status(address, "suspend", provider, reason=reason, as_json=as_json)


@on_node
def recover(
    address: NodeAddress,
    provider: ProviderArgument,
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """End a provider's suspension."""
    _change_status(address, "recover", provider, reason=reason, as_json=as_json)
