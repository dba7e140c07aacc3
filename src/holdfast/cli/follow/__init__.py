"""`holdfast follow run | status`: keep headers, leaves, blobs and notices of a chain, checked, without its journal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.app.log_output import configure_logging
from holdfast.cli import make_app
from holdfast.cli.terminal.options import Ca, ConfigFile, Data, Json, TokenFile
from holdfast.cli.terminal.reporting import load_settings, report_errors
from holdfast.cli.terminal.tables import print_json, print_record, print_table
from holdfast.client.node_url import TOKEN_VARIABLE
from holdfast.config import Config
from holdfast.core.base.errors import Unavailable
from holdfast.lightclient.header_export import parse_keys

app = make_app(no_args_is_help=True)


@app.callback()
def _follow() -> None:
    """Keep headers, leaves, blobs and notices of a chain, checked, without its journal."""


@app.command(example=f"holdfast follow run https://node.example:8451 --key {'ab' * 32} --token-file auditor.token")
def run(
    urls: Annotated[list[str], typer.Argument(metavar="URL", help="Nodes to follow, for example http://host:8645.")],
    keys: Annotated[list[str], typer.Option("--key", help="A public key whose blocks count from the first one on.")],
    data: Data = None,
    config: ConfigFile = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve what is here to others; needs --listen-token-file.")
    ] = None,
    listen_token_file: Annotated[
        Path | None, typer.Option(help="File that contains only the token that others must show.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Stop when there is nothing more to get now.")] = False,
) -> None:
    """Follow a chain: check and store every final block, delete bytes when an archive verifiably has them.

    The nodes need an auditor's key. The archive of the settings, where one is named, is read back before anything is
    deleted; without one, all bytes stay. What a peer sends is refused unless a validator has signed it.
    """
    settings = load_settings(config, {"data": data})
    configure_logging(settings.log)
    with report_errors():
        trusted = parse_keys(keys)
        serving = _serving(listen, listen_token_file)
        asyncio.run(_run(settings, urls, sorted(trusted), _token(token_file), ca, serving, once=once))


@app.command(example="holdfast follow status")
def status(
    height: Annotated[int, typer.Argument(metavar="[HEIGHT]", min=0, help="One block. [default: the last]")] = 0,
    data: Data = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show how far a follower is, and whether bytes of a block are here, pruned or absent, and who archived them."""
    from holdfast.app.follower import follower_view  # noqa: PLC0415 - it takes long to load

    settings = load_settings(config, {"data": data})
    with report_errors():
        view = asyncio.run(follower_view(settings, height))
    if as_json:
        print_json(view)
        return
    print_record({name: value for name, value in view.items() if name != "blobs"})
    heads = ("index", "bytes", "status", "assurance", "by", "locator")
    rows = [[blob[name] for name in ("number", *heads[1:])] for blob in view["blobs"]]
    if rows:
        print_table(heads, rows)


def _serving(listen: str | None, token_file: Path | None) -> tuple[str, int, str] | None:
    """Host, port and token."""
    if listen is None:
        return None
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise Unavailable("SYN-001", f"--listen: {listen!r:.60} is no address", "for example 127.0.0.1:8650")
    if token_file is None:
        raise Unavailable("SEC-001", "--listen-token-file: not set", "others must show a token")
    return host, int(port), _token(token_file) or ""


def _token(file: Path | None) -> str | None:
    from holdfast.adapters.keys.secret_file import read_secret  # noqa: PLC0415

    return os.environ.get(TOKEN_VARIABLE) if file is None else read_secret(file).decode("utf-8").strip()


async def _run(
    settings: Config,
    urls: list[str],
    keys: list[bytes],
    token: str | None,
    ca: Path | None,
    serving: tuple[str, int, str] | None,
    *,
    once: bool,
) -> None:
    from holdfast.app.follower import FollowerProcess  # noqa: PLC0415 - it takes long to load

    if wrong := next((url for url in urls if not url.startswith(("http://", "https://"))), None):
        raise Unavailable("SYN-001", f"{wrong!r:.80} is no address", "for example http://host:8645")
    process = FollowerProcess(settings, urls, keys, token, ca)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    try:
        if serving is not None:
            await process.serve(*serving)
        status = await process.run(stopped, once=once)
    finally:
        await process.close()
    print(f"block {status.height}: {status.here} heights with bytes here", file=sys.stderr)
    if once and status.fault:
        raise Unavailable("SYN-001", f"no peer can be asked: {status.fault}", "check the address and the key")
    if once and status.height < status.peers_height:
        raise Unavailable(
            "SYN-001", f"the peers have block {status.peers_height}", "their packages were refused: see above"
        )
