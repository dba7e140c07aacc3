"""`holdfast provider register`: register a provider by its key file, before its agent runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.agent.options import (
    AgentCa,
    AgentCertificate,
    AllowPlain,
    Circuits,
    Invitation,
    Models,
    NodeOption,
    Prices,
    read_invitation_file,
    read_prices,
)
from holdfast.cli.terminal.options import Json
from holdfast.cli.terminal.reporting import value_or_exit
from holdfast.cli.terminal.tables import print_json, print_record


def register(
    key: Annotated[Path, typer.Argument(metavar="KEY_FILE", help="The provider's key; created if it does not exist.")],
    node: NodeOption,
    name: Annotated[str, typer.Option(help="The provider's display name.")],
    account: Annotated[str, typer.Option(help="The account that receives fees and pays the stake.")],
    model: Models = None,
    circuits: Circuits = False,
    slots: Annotated[int, typer.Option(help="How many jobs run at the same time.")] = 4,
    price: Prices = None,
    region: Annotated[str, typer.Option(help="Where it runs; jobs may require a region.")] = "",
    attest_days: Annotated[int, typer.Option(help="How long its attestation is valid.")] = 30,
    invitation: Invitation = None,
    ca: AgentCa = None,
    certificate: AgentCertificate = None,
    certificate_key: Annotated[Path | None, typer.Option(help="The key of that certificate.")] = None,
    allow_plain: AllowPlain = False,
    as_json: Json = False,
) -> None:
    """Register a provider with the key in KEY_FILE, as its agent would, and print its id.

    To run `holdfast agent` afterwards, copy the key to keys/agent.pem in the agent's folder.
    """
    from holdfast.cli.provider.registration import RegistrationOptions, register_provider  # noqa: PLC0415 - heavy

    options = RegistrationOptions(
        node=node,
        name=name,
        account=account,
        models=tuple(model or ()),
        circuits=circuits,
        slots=slots,
        **value_or_exit(read_prices(price)),
        region=region,
        attest_days=attest_days,
        invitation="" if invitation is None else read_invitation_file(invitation),
    )
    registered = register_provider(key, options, (ca, certificate, certificate_key), allow_plain=allow_plain)
    print_json(registered) if as_json else print_record(registered)
