"""`holdfast gateway`: run an archive that speaks the API of load-s3-agent, and look after what it stores (ARC-004)."""

from __future__ import annotations

import typer

from holdfast.cli import make_app
from holdfast.cli.gateway import key, maintain
from holdfast.cli.gateway import serve as serving
from holdfast.cli.terminal.options import ConfigFile, Data

app = make_app(invoke_without_command=True)
app.command("serve", example="holdfast gateway serve --port 1247")(serving.serve)
app.command("check", example="holdfast gateway check")(maintain.check)
app.command("scrub", example="holdfast gateway scrub --json")(maintain.scrub)
app.command("reindex", example="holdfast gateway reindex")(maintain.reindex)
app.command("stats", example="holdfast gateway stats")(maintain.stats)
app.add_typer(key.app, name="key")


@app.callback()
def _gateway(context: typer.Context, data: Data = None, config: ConfigFile = None) -> None:
    """Run an archive that speaks the API of load-s3-agent, on this machine's disk or any S3-compatible store.

    Without a command it serves. Settings are those of the table [gateway], or HOLDFAST_GATEWAY__PORT … in the
    environment. It needs no node: `holdfast gateway key create` creates a key, and `holdfast gateway` runs.
    """
    if context.invoked_subcommand is None:
        serving.serve(data=data, config=config)
