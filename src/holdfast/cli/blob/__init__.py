"""`holdfast blob`: the blobs in which results are archived."""

from __future__ import annotations

from holdfast.cli import make_app
from holdfast.cli.blob import fetch, operate, show

app = make_app(no_args_is_help=True)


@app.callback()
def _blob() -> None:
    """Show, fetch, audit and prune the blobs in which results are archived."""


app.command("status", example="holdfast blob status 120")(show.status)
app.command("fetch", example="holdfast blob fetch 3f9c0a1b --output result.bin")(fetch.fetch)
app.command("audit", example="holdfast blob audit --sample 100")(operate.audit)
app.command("retry", example="holdfast blob retry 120")(operate.retry)
app.command("prune", example="holdfast blob prune --before 1000")(operate.prune)
