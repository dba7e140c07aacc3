"""Options that many verbs share, defined once so that they read and behave the same everywhere."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from holdfast.client.node_url import TOKEN_VARIABLE, URL_VARIABLE

Data = Annotated[Path | None, typer.Option(help="The node's folder. [default: ./holdfast-data]")]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file with the node's settings. [default: ./holdfast.toml if it exists]"),
]
Url = Annotated[
    str | None,
    typer.Option("--url", help=f"Call this node over HTTP instead; the token is in {TOKEN_VARIABLE}. [{URL_VARIABLE}]"),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(help=f"File that contains only the token, instead of {TOKEN_VARIABLE}; with --url."),
]
Ca = Annotated[Path | None, typer.Option(help="CA certificate that signed the node's; with --url https://…")]
Json = Annotated[bool, typer.Option("--json", help="Print the whole answer as JSON.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
JsonAlways = Annotated[bool, typer.Option("--json", help="Accepted everywhere; its output is JSON in any case.")]
Wide = Annotated[bool, typer.Option("--wide", help="Print ids in full.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1_000, help="At most this many.")]
AfterEvent = Annotated[
    int, typer.Option("--after", metavar="EVENT", min=0, help="Continue after this one, as the last page says.")
]
OldestFirst = Annotated[bool, typer.Option("--oldest-first", help="From the oldest up. [default: newest first]")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask: it cannot be undone.")]


class NodeAddress(msgspec.Struct, frozen=True):
    """Where the node is, as the options say."""

    data: Path | None = None
    url: str | None = None
    token_file: Path | None = None
    ca: Path | None = None


NODE_OPTIONS: Final = {"data": Data, "url": Url, "token_file": TokenFile, "ca": Ca}
LAST: Final = ("wide", "as_json")
"""Options of the output stand at the end of the help."""


def on_node(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options that name its node; it gets them as its first argument, a `NodeAddress`."""
    signature = inspect.signature(verb, eval_str=True)
    _, *own = signature.parameters.values()
    added = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=hint) for name, hint in NODE_OPTIONS.items()
    ]
    given = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in own]
    ordered = [each for each in given if each.name not in LAST] + added + [each for each in given if each.name in LAST]

    @functools.wraps(verb)
    def with_address(**options: Any) -> None:
        verb(_address(**{name: options.pop(name) for name in NODE_OPTIONS}), **options)

    with_address.__signature__ = signature.replace(parameters=ordered)  # type: ignore[attr-defined]
    with_address.__annotations__ = {each.name: each.annotation for each in ordered} | {"return": None}
    return with_address


def _address(data: Path | None, url: str | None, token_file: Path | None, ca: Path | None) -> NodeAddress:
    """A node that is named by an option counts before the one of the environment."""
    if url is None and data is None:
        url = os.environ.get(URL_VARIABLE) or None
    return NodeAddress(data, url, token_file, ca)
