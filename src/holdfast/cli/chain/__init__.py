"""`holdfast chain`: show the chain, export it, verify it anywhere, and roll it back on development networks."""

from __future__ import annotations

from holdfast.cli import make_app
from holdfast.cli.chain import export, replay, rollback, show, verify

app = make_app(no_args_is_help=True, help="Show, export, verify and roll back the chain.")
app.command("head")(show.head)
app.command("show")(show.show)
app.command("list")(show.list_)
app.command("prove")(show.prove)
app.command("prove-consistency")(show.prove_consistency)
app.command("export")(export.export)
app.command("verify")(verify.verify)
app.command("replay")(replay.replay)
app.command("rollback")(rollback.rollback)
