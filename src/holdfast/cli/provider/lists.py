"""`holdfast provider allow | deny | unlist | lists`: whom an operator gives work at all."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.asking import Ca, Data, Json, Place, TokenFile, Url, ask
from holdfast.cli.columns import print_json, print_table
from holdfast.cli.provider.moves import Reason
from holdfast.cli.speak import refuse
from holdfast.core.refusal import Refused

Whom = Annotated[str | None, typer.Argument(metavar="PROVIDER", help="The provider's id.")]
Region = Annotated[str | None, typer.Option(help="A region instead of one provider.")]


def _list(place: Place, verb: str, provider: str | None, region: str | None, reason: str) -> None:
    if (provider is None) == (region is None):
        refuse(Refused("MAT-002", "name a provider, or a region with --region", name="InvalidParams"))
    whom: dict[str, object] = {"region": region} if provider is None else {"provider_id": provider}
    told = ask(place, f"provider.{verb}", reason=reason, **whom)
    print("it was so already" if told["is_repeat"] else f"done (event {told['event']})")


def allow(
    provider: Whom = None,
    region: Region = None,
    reason: Reason = "",
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Allow a provider, or a region. From the first one on, only those who are allowed get work."""
    _list(Place(data, url, token_file, ca), "allow", provider, region, reason)


def deny(
    provider: Whom = None,
    region: Region = None,
    reason: Reason = "",
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Deny a provider, or a region, all work; what runs goes on."""
    _list(Place(data, url, token_file, ca), "deny", provider, region, reason)


def unlist(
    provider: Whom = None,
    region: Region = None,
    reason: Reason = "",
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Take a provider, or a region, off both lists."""
    _list(Place(data, url, token_file, ca), "unlist", provider, region, reason)


def lists(
    data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None, as_json: Json = False
) -> None:
    """Who is allowed and who is denied."""
    found = ask(Place(data, url, token_file, ca), "provider.lists")
    if as_json:
        print_json(found)
        return
    rows = [(verdict, name) for verdict in ("allowed", "denied") for name in found[verdict]]
    print_table(("LIST", "WHO"), rows)
