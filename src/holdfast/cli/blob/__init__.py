"""`holdfast blob`: the blobs in which results are archived."""

from __future__ import annotations

from holdfast.cli import make_app
from holdfast.cli.blob import fetch, operate, show

app = make_app(no_args_is_help=True)


@app.callback()
def _blob() -> None:
    """Show, fetch, audit and prune the blobs in which results are archived."""


app.command("status")(show.status)
app.command("fetch")(fetch.fetch)
app.command("audit")(operate.audit)
app.command("retry")(operate.retry)
app.command("prune")(operate.prune)
