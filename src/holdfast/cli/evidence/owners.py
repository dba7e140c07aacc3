"""`holdfast evidence seal` and `assign`: what an operator decides about sessions and channels."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.asking import Ca, Data, Place, TokenFile, Url, ask
from holdfast.cli.evidence.look import Channel


def seal(
    channel: Channel,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="A session that has no end of its own.")],
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Say that nothing more comes of a session, so that policy may let go of its records one day.

    If more comes all the same, it is taken, and the session is open again.
    """
    told = ask(Place(data, url, token_file, ca), "evidence.seal", channel=channel, session=session)
    print("it was final before" if told["is_repeat"] else f"{channel}/{session} is final")


def assign(
    channel: Channel,
    owner: Annotated[
        str, typer.Argument(metavar="OWNER", help="The name in the certificate of whoever sends for it.")
    ] = "",
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Say whose certificate may send for the channel of a v0.1 sender; without a name it is the channel's own again."""
    ask(Place(data, url, token_file, ca), "evidence.assign", channel=channel, owner=owner)
    print(f"{channel} takes evidence from the certificate of {owner or channel}")
