"""`holdfast evidence seal` and `set-owner`: what an operator decides about sessions and channels."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.evidence.show import Channel
from holdfast.cli.terminal.node_client import NodeAddress, call_node
from holdfast.cli.terminal.options import Ca, Data, TokenFile, Url


def seal(
    channel: Channel,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="A session without a final record.")],
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Mark a session as final, so that retention may prune its records.

    If its sender delivers more records, they are stored and the session is open again.
    """
    answer = call_node(NodeAddress(data, url, token_file, ca), "evidence.sealSession", channel=channel, session=session)
    print("it was final already" if answer["is_repeat"] else f"{channel}/{session} is final")


def set_owner(
    channel: Channel,
    owner: Annotated[
        str, typer.Argument(metavar="OWNER", help="The name in the certificate of the channel's sender.")
    ] = "",
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Set whose certificate may send for the channel of a v0.1 sender. Without OWNER it is the channel's own name."""
    call_node(NodeAddress(data, url, token_file, ca), "evidence.setOwner", channel=channel, owner=owner)
    print(f"{channel} accepts evidence from the certificate of {owner or channel}")
