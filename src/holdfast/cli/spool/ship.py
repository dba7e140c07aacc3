"""`holdfast spool ship`: deliver everything below a root to a node or a v0.1 receiver."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast.cli.spool.session import EXIT_NOT_INTACT, EXIT_UNREADABLE, exit_with, report_spool_errors
from holdfast.core.base.errors import Refused

STATE_VARIABLE: Final = "XDG_STATE_HOME"


def ship(
    root: Annotated[Path, typer.Argument(metavar="DIR", help="The folder with the channels' folders.")],
    to: Annotated[str, typer.Option(metavar="HOST:PORT", help="The receiver's gRPC address.")],
    protocol: Annotated[str, typer.Option(metavar="retrovue|holdfast", help="What the receiver speaks.")] = "retrovue",
    markers: Annotated[
        Path | None,
        typer.Option(help="Folder for our acks of other programs' sessions.  [default: in the user's state folder]"),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until interrupted.")] = False,
    timeout_s: Annotated[float, typer.Option(min=0.0, help="Without --follow: give up after this time.")] = 600.0,
    agent_data: Annotated[
        Path | None, typer.Option(help="Folder of the agent whose channel it is; the holdfast protocol needs its key.")
    ] = None,
    metrics: Annotated[
        int | None, typer.Option(metavar="PORT", help="Serve metrics for Prometheus on this loopback port.")
    ] = None,
    ca: Annotated[Path | None, typer.Option(help="CA certificate of the receiver; turns TLS on.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="Client certificate, if the receiver requires one.")] = None,
    key: Annotated[Path | None, typer.Option(help="The key of that certificate.")] = None,
    allow_plain: Annotated[
        bool, typer.Option("--allow-plain", help="Connect to another machine without TLS, if something else encrypts.")
    ] = False,
) -> None:
    """Deliver all sessions below ROOT, oldest first: ours, and those of programs that write v0.1 spools.

    Sessions of other programs are only read, also while they are written. Up to where they are delivered is stored in
    a folder of our own, so the next run continues there. Sessions that are open in a process of ours are left to it.

    Exit code 0: everything is delivered. 1: something is not. 2: cannot be read.
    """
    from holdfast.cli.agent import load_tls, why_not_plain  # noqa: PLC0415 - gRPC is heavy, other verbs do not need it
    from holdfast.cli.spool.ship_run import ship_until  # noqa: PLC0415

    with report_spool_errors():
        tls = load_tls(ca, certificate, key)
        if refusal := why_not_plain(to, tls, allow_plain=allow_plain):
            exit_with(refusal, EXIT_UNREADABLE)
        if not root.is_dir():
            hint = "the folder with the channels' folders"
            exit_with(Refused("SP-007", f"{root} is not a folder", hint, "NotFound"), EXIT_UNREADABLE)
        is_all = ship_until(
            root,
            markers or default_markers(root),
            to,
            tls,
            protocol,
            agent_data,
            metrics,
            None if follow else timeout_s,
        )
        raise typer.Exit(0 if is_all else EXIT_NOT_INTACT)


def default_markers(root: Path) -> Path:
    """One folder for each root, below the user's state folder."""
    state = os.environ.get(STATE_VARIABLE) or str(Path.home() / ".local" / "state")
    name = blake2b(str(root.resolve()).encode(), digest_size=8).hexdigest()
    return Path(state) / "holdfast" / "spools" / name
