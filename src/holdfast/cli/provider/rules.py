"""`holdfast provider allow | deny | unset-rule | rules`: which providers and regions may get jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.provider.operator_actions import Reason
from holdfast.cli.terminal.node_client import call_node
from holdfast.cli.terminal.options import Json, NodeAddress, on_node
from holdfast.cli.terminal.reporting import refuse
from holdfast.cli.terminal.tables import print_json, print_outcome, print_table
from holdfast.core.base.errors import Refused

OptionalProviderArgument = Annotated[
    str | None, typer.Argument(metavar="[PROVIDER]", help="Its name, its id, or the beginning of its id.")
]
Region = Annotated[str | None, typer.Option(help="A region instead of one provider.")]


def _set_rule(
    address: NodeAddress, method: str, provider: str | None, region: str | None, reason: str, *, as_json: bool
) -> None:
    if (provider is None) == (region is None):
        hint = "holdfast provider deny oak, or --region eu"
        refuse(Refused("MAT-002", "pass a provider, or a region with --region", hint, "InvalidParams"))
    subject: dict[str, object] = {"region": region} if provider is None else {"provider_id": provider}
    answer = call_node(address, method, reason=reason, **subject)
    print_outcome(answer, "unchanged" if answer["is_repeat"] else f"done (event {answer['event']})", as_json=as_json)


@on_node
def allow(
    address: NodeAddress,
    provider: OptionalProviderArgument = None,
    region: Region = None,
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Allow a provider or a region. Once there is an allow rule, only allowed providers get jobs."""
    _set_rule(address, "provider.allow", provider, region, reason, as_json=as_json)


@on_node
def deny(
    address: NodeAddress,
    provider: OptionalProviderArgument = None,
    region: Region = None,
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Deny a provider or a region all jobs; running leases go on."""
    _set_rule(address, "provider.deny", provider, region, reason, as_json=as_json)


@on_node
def unset_rule(
    address: NodeAddress,
    provider: OptionalProviderArgument = None,
    region: Region = None,
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Remove the rule of a provider or a region."""
    _set_rule(address, "provider.unsetRule", provider, region, reason, as_json=as_json)


@on_node
def rules(address: NodeAddress, as_json: Json = False) -> None:
    """List which providers and regions are allowed and denied."""
    lists = call_node(address, "provider.listRules")
    if as_json:
        print_json(lists)
        return
    rows = [(rule, name) for rule in ("allowed", "denied") for name in lists[rule]]
    print_table(("RULE", "PROVIDER OR REGION"), rows)
