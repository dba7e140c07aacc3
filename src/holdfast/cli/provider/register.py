"""`holdfast provider register`: make a provider known by its key file, without running its agent yet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.agent import AllowPlain, Circuits, Models
from holdfast.cli.columns import print_record


def register(
    key: Annotated[Path, typer.Argument(metavar="KEY_FILE", help="The provider's key; made if it is not there.")],
    node: Annotated[str, typer.Option(metavar="HOST:PORT", help="The node's gRPC door.")],
    name: Annotated[str, typer.Option(help="What people call this provider.")],
    account: Annotated[str, typer.Option(help="Where fees go and the stake comes from.")],
    model: Models = None,
    circuits: Circuits = False,
    slots: Annotated[int, typer.Option(help="Jobs that are worked on at a time.")] = 4,
    price: Annotated[int, typer.Option(help="For a unit of work, in the smallest unit of money.")] = 1,
    region: Annotated[str, typer.Option(help="Where it runs, as jobs may ask for it.")] = "",
    attest_days: Annotated[int, typer.Option(help="For how long what it says of itself holds.")] = 30,
    ca: Annotated[Path | None, typer.Option(help="The authority that signed the node's certificate.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="What is shown where the node asks for it.")] = None,
    certificate_key: Annotated[Path | None, typer.Option(help="The key of that certificate.")] = None,
    allow_plain: AllowPlain = False,
) -> None:
    """Register a provider with the key in KEY_FILE, as its agent would, and print its id.

    For `holdfast agent` afterwards, the key's place is keys/agent.pem in the agent's folder.
    """
    from holdfast.cli.provider.registering import Wanted, registered  # noqa: PLC0415 - the other verbs need no crypto

    told = (node, name, account, tuple(model or ()), circuits, slots, price, region, attest_days)
    print_record(registered(key, Wanted(*told), (ca, certificate, certificate_key), allow_plain=allow_plain))
