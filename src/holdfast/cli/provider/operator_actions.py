"""`holdfast provider drain | undrain | retire | jail | unjail | suspend | recover`: change a provider's status."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli.provider.show import ProviderArgument
from holdfast.cli.terminal.node_client import NodeAddress, NodeSession, run_on_node
from holdfast.cli.terminal.options import Ca, Data, TokenFile, Url
from holdfast.cli.terminal.tables import pluralize

Reason = Annotated[str, typer.Option(help="Why; recorded in the journal.")]


def _change_status(address: NodeAddress, method: str, provider_id: str, **params: object) -> None:
    async def change_and_read(node: NodeSession) -> Any:
        answer = await node.call(f"provider.{method}", provider_id=provider_id, **params)
        return answer, (await node.call("aicf.getProvider", provider_id=provider_id))["provider"]

    answer, provider = run_on_node(address, change_and_read)
    event = "unchanged" if answer["is_repeat"] else f"event {answer['event']}"
    draining = ", draining" if provider["is_draining"] else ""
    until = f" until block {provider['jailed_until']}" if provider["jailed_until"] else ""
    leases = f"; it still has {pluralize(provider['leases'], 'lease')}" if provider["leases"] else ""
    print(f"{provider['name']} is {provider['status']}{until}{draining} ({event}){leases}")


def drain(
    provider: ProviderArgument,
    reason: Reason = "",
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Assign no new jobs to a provider; it finishes its leases."""
    _change_status(NodeAddress(data, url, token_file, ca), "drain", provider, reason=reason)


def undrain(
    provider: ProviderArgument,
    reason: Reason = "",
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Assign jobs to a provider again."""
    _change_status(NodeAddress(data, url, token_file, ca), "undrain", provider, reason=reason)


def retire(
    provider: ProviderArgument,
    reason: Reason = "",
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Retire a provider for good. Its leases are revoked; its stake can then be withdrawn."""
    _change_status(NodeAddress(data, url, token_file, ca), "retire", provider, reason=reason)


def jail(
    provider: ProviderArgument,
    blocks: Annotated[int, typer.Option(min=0, help="For how many blocks; 0: until `unjail`.")] = 0,
    reason: Reason = "",
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Jail a provider. Its leases are revoked; the jobs are requeued without a failure."""
    _change_status(NodeAddress(data, url, token_file, ca), "jail", provider, blocks=blocks, reason=reason)


def unjail(
    provider: ProviderArgument,
    reason: Reason = "",
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Release a provider from jail; its next heartbeat can make it active again."""
    _change_status(NodeAddress(data, url, token_file, ca), "unjail", provider, reason=reason)


def suspend(
    provider: ProviderArgument,
    reason: Reason = "",
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Suspend a provider until `recover`. Its leases are revoked."""
    _change_status(NodeAddress(data, url, token_file, ca), "suspend", provider, reason=reason)


def recover(
    provider: ProviderArgument,
    reason: Reason = "",
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """End a provider's suspension."""
    _change_status(NodeAddress(data, url, token_file, ca), "recover", provider, reason=reason)
