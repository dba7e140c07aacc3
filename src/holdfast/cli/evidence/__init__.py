"""`holdfast evidence`: the evidence that agents delivered, how far each session is, and records that were rejected."""

from __future__ import annotations

from holdfast.cli import make_app
from holdfast.cli.evidence import dead_letter, export, ownership, show

app = make_app(no_args_is_help=True, help="Show the evidence that agents delivered, and records that were rejected.")
app.command("list")(show.list_)
app.command("show")(show.show)
app.command("export")(export.export)
app.command("asrun")(export.asrun)
app.command("seal")(ownership.seal)
app.command("set-owner")(ownership.set_owner)
app.add_typer(dead_letter.app, name="dead-letter")
