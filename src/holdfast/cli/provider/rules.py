"""`holdfast provider allow | deny | unset-rule | rules`: which providers and regions may get jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.provider.operator_actions import Reason
from holdfast.cli.terminal.node_client import NodeAddress, call_node
from holdfast.cli.terminal.options import Ca, Data, Json, TokenFile, Url
from holdfast.cli.terminal.reporting import refuse
from holdfast.cli.terminal.tables import print_json, print_table
from holdfast.core.base.errors import Refused

OptionalProviderArgument = Annotated[str | None, typer.Argument(metavar="PROVIDER", help="The provider's id.")]
Region = Annotated[str | None, typer.Option(help="A region instead of one provider.")]


def _set_rule(address: NodeAddress, method: str, provider: str | None, region: str | None, reason: str) -> None:
    if (provider is None) == (region is None):
        refuse(Refused("MAT-002", "pass a provider, or a region with --region", name="InvalidParams"))
    subject: dict[str, object] = {"region": region} if provider is None else {"provider_id": provider}
    answer = call_node(address, method, reason=reason, **subject)
    print("unchanged" if answer["is_repeat"] else f"done (event {answer['event']})")


def allow(
    provider: OptionalProviderArgument = None,
    region: Region = None,
    reason: Reason = "",
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Allow a provider or a region. Once there is an allow rule, only allowed providers get jobs."""
    _set_rule(NodeAddress(data, url, token_file, ca), "provider.allow", provider, region, reason)


def deny(
    provider: OptionalProviderArgument = None,
    region: Region = None,
    reason: Reason = "",
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Deny a provider or a region all jobs; running leases go on."""
    _set_rule(NodeAddress(data, url, token_file, ca), "provider.deny", provider, region, reason)


def unset_rule(
    provider: OptionalProviderArgument = None,
    region: Region = None,
    reason: Reason = "",
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Remove the rule of a provider or a region."""
    _set_rule(NodeAddress(data, url, token_file, ca), "provider.unsetRule", provider, region, reason)


def rules(
    data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None, as_json: Json = False
) -> None:
    """List which providers and regions are allowed and denied."""
    lists = call_node(NodeAddress(data, url, token_file, ca), "provider.listRules")
    if as_json:
        print_json(lists)
        return
    rows = [(rule, name) for rule in ("allowed", "denied") for name in lists[rule]]
    print_table(("RULE", "PROVIDER OR REGION"), rows)
