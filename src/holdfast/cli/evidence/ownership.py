"""`holdfast evidence seal` and `set-owner`: what an operator decides about sessions and channels."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.evidence.show import Channel
from holdfast.cli.terminal.node_client import call_node
from holdfast.cli.terminal.options import Json, NodeAddress, on_node
from holdfast.cli.terminal.tables import print_outcome


@on_node
def seal(
    address: NodeAddress,
    channel: Channel,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="A session without a final record.")],
    as_json: Json = False,
) -> None:
    """Mark a session as final, so that retention may prune its records.

    If its sender delivers more records, they are stored and the session is open again.
    """
    answer = call_node(address, "evidence.sealSession", channel=channel, session=session)
    outcome = "it was final already" if answer["is_repeat"] else f"{channel}/{session} is final"
    print_outcome(answer, outcome, as_json=as_json)


@on_node
def set_owner(
    address: NodeAddress,
    channel: Channel,
    owner: Annotated[
        str, typer.Argument(metavar="OWNER", help="The name in the certificate of the channel's sender.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Set whose certificate may send for the channel of a v0.1 sender. Without OWNER it is the channel's own name."""
    answer = call_node(address, "evidence.setOwner", channel=channel, owner=owner)
    outcome = f"{channel} accepts evidence from the certificate of {owner or channel}"
    print_outcome(answer, outcome, as_json=as_json)
