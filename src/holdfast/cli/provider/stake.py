"""`holdfast provider stake | unstake`: what a provider has to lose, more of it and less of it."""

from __future__ import annotations

import secrets
from typing import Annotated, Any

import typer

from holdfast.cli.asking import Asked, Ca, Data, Place, TokenFile, Url, run
from holdfast.cli.columns import when
from holdfast.cli.provider.look import Id

Money = Annotated[int, typer.Argument(metavar="AMOUNT", min=1, help="In the smallest unit.")]


def stake(
    provider: Id,
    amount: Money,
    mint: Annotated[
        bool, typer.Option("--mint", help="Make the money first, on a development network, for the provider's account.")
    ] = False,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Put money of the provider's account at stake; enough of it, and a heartbeat, make it active."""
    request, minted = secrets.token_hex(32), secrets.token_hex(32)

    async def work(node: Asked) -> Any:
        if mint:
            account = (await node.call("aicf.getProvider", provider_id=provider))["provider"]["account"]
            await node.call("account.mint", id=minted, owner=account, amount=amount)
        await node.call("provider.stake", provider_id=provider, amount=amount, request=request)
        return await node.call("aicf.getProvider", provider_id=provider)

    found = run(Place(data, url, token_file, ca), work)
    one = found["provider"]
    print(f"{one['name']} has {one['stake']} at stake, of {found['stake_min']} that it needs; it is {one['status']}")


def unstake(
    provider: Id,
    amount: Money,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Take money back from the stake. It counts no more at once and comes back when its lock is over.

    Below the minimum the provider gets no more work; while it holds leases, drain it first.
    """
    request = secrets.token_hex(32)

    async def work(node: Asked) -> Any:
        await node.call("provider.unstake", provider_id=provider, amount=amount, request=request)
        return await node.call("aicf.getProvider", provider_id=provider)

    found = run(Place(data, url, token_file, ca), work)
    one = found["provider"]
    print(f"{one['name']} has {one['stake']} at stake, of {found['stake_min']} that it needs; it is {one['status']}")
    print(f"{one['unstaking']} comes back from block {one['unstake_height']} and {when(one['unstake_ms'])} on")
