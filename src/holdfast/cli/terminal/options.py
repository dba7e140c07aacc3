"""Options that many verbs share, defined once so that they read and behave the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.client.node_url import TOKEN_VARIABLE

Data = Annotated[Path | None, typer.Option(help="The node's folder. [default: ./holdfast-data]")]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file with the node's settings. [default: ./holdfast.toml if it exists]"),
]
Url = Annotated[
    str | None,
    typer.Option("--url", help=f"Call this node over HTTP instead; the token is read from {TOKEN_VARIABLE}."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(help=f"File that contains only the token, instead of {TOKEN_VARIABLE}; with --url."),
]
Ca = Annotated[Path | None, typer.Option(help="CA certificate that signed the node's; with --url https://…")]
Json = Annotated[bool, typer.Option("--json", help="Print the whole answer as JSON.")]
