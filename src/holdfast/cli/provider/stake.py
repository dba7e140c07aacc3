"""`holdfast provider stake | unstake`: add to a provider's stake, or withdraw from it."""

from __future__ import annotations

import secrets
from typing import Annotated, Any

import typer

from holdfast.cli.provider.show import ProviderArgument
from holdfast.cli.terminal.node_client import NodeSession, run_on_node
from holdfast.cli.terminal.options import Json, NodeAddress, on_node
from holdfast.cli.terminal.tables import format_time, print_outcome

AmountArgument = Annotated[int, typer.Argument(metavar="AMOUNT", min=1, help="In the smallest unit.")]


@on_node
def stake(
    address: NodeAddress,
    provider: ProviderArgument,
    amount: AmountArgument,
    mint: Annotated[
        bool, typer.Option("--mint", help="Mint the money first for the provider's account, on a development network.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Stake money of the provider's account. With the minimum stake and a heartbeat the provider becomes active."""
    request, mint_request = secrets.token_hex(32), secrets.token_hex(32)

    async def stake_and_read(node: NodeSession) -> Any:
        if mint:
            account = (await node.call("aicf.getProvider", provider_id=provider))["provider"]["account"]
            await node.call("account.mint", id=mint_request, owner=account, amount=amount)
        await node.call("provider.stake", provider_id=provider, amount=amount, request=request)
        return await node.call("aicf.getProvider", provider_id=provider)

    view = run_on_node(address, stake_and_read)
    print_outcome(view, _format_stake(view), as_json=as_json)


@on_node
def unstake(
    address: NodeAddress,
    provider: ProviderArgument,
    amount: AmountArgument,
    as_json: Json = False,
) -> None:
    """Withdraw money from the stake. It stops counting at once and is paid out when its lock ends.

    Below the minimum stake the provider gets no jobs. While it has leases, drain it first.
    """
    request = secrets.token_hex(32)

    async def unstake_and_read(node: NodeSession) -> Any:
        await node.call("provider.unstake", provider_id=provider, amount=amount, request=request)
        return await node.call("aicf.getProvider", provider_id=provider)

    view = run_on_node(address, unstake_and_read)
    provider_view = view["provider"]
    lock = f"block {provider_view['unstake_height']} and {format_time(provider_view['unstake_ms'])}"
    locked = f"{provider_view['unstaking']} is locked until {lock}"
    print_outcome(view, _format_stake(view), locked, as_json=as_json)


def _format_stake(view: dict[str, Any]) -> str:
    provider = view["provider"]
    needed = f"of {view['stake_min']} that it needs"
    return f"{provider['name']} has {provider['stake']} at stake, {needed}; it is {provider['status']}"
