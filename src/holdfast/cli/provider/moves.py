"""`holdfast provider drain | undrain | retire | jail | unjail | suspend | recover`: what is done about a provider."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli.asking import Asked, Ca, Data, Place, TokenFile, Url, run
from holdfast.cli.provider.look import Id

Reason = Annotated[str, typer.Option(help="Why, for whoever reads it later.")]


def _do(place: Place, method: str, provider: str, **params: object) -> None:
    async def work(node: Asked) -> Any:
        told = await node.call(f"provider.{method}", provider_id=provider, **params)
        return told, (await node.call("aicf.getProvider", provider_id=provider))["provider"]

    told, one = run(place, work)
    since = "it was so already" if told["is_repeat"] else f"event {told['event']}"
    drains = ", draining" if one["is_draining"] else ""
    until = f" until block {one['jailed_until']}" if one["jailed_until"] else ""
    held = f"; it still holds {one['leases']} leases" if one["leases"] else ""
    print(f"{one['name']} is {one['status']}{until}{drains} ({since}){held}")


def drain(
    provider: Id, reason: Reason = "", data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None
) -> None:
    """Give a provider no new work; it finishes what it has."""
    _do(Place(data, url, token_file, ca), "drain", provider, reason=reason)


def undrain(
    provider: Id, reason: Reason = "", data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None
) -> None:
    """Give a provider work again."""
    _do(Place(data, url, token_file, ca), "undrain", provider, reason=reason)


def retire(
    provider: Id, reason: Reason = "", data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None
) -> None:
    """Let a provider go for good. What it holds goes to others; its stake can then be taken back."""
    _do(Place(data, url, token_file, ca), "retire", provider, reason=reason)


def jail(
    provider: Id,
    blocks: Annotated[int, typer.Option(min=0, help="For so many blocks; 0: until somebody lets it out.")] = 0,
    reason: Reason = "",
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Jail a provider. What it holds goes to others, without blame for the jobs."""
    _do(Place(data, url, token_file, ca), "jail", provider, blocks=blocks, reason=reason)


def unjail(
    provider: Id, reason: Reason = "", data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None
) -> None:
    """Let a provider out of jail; with its next heartbeat it may be active again."""
    _do(Place(data, url, token_file, ca), "unjail", provider, reason=reason)


def suspend(
    provider: Id, reason: Reason = "", data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None
) -> None:
    """Suspend a provider until it is taken back with `recover`. What it holds goes to others."""
    _do(Place(data, url, token_file, ca), "suspend", provider, reason=reason)


def recover(
    provider: Id, reason: Reason = "", data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None
) -> None:
    """Take a suspended provider back."""
    _do(Place(data, url, token_file, ca), "recover", provider, reason=reason)
