"""`holdfast evidence`: the evidence that agents delivered, how far each session is, and records that were rejected."""

from __future__ import annotations

from holdfast.cli import make_app
from holdfast.cli.evidence import dead_letter, export, ownership, show

app = make_app(no_args_is_help=True, help="Show the evidence that agents delivered, and records that were rejected.")
app.command("list", example="holdfast evidence list")(show.list_)
app.command("show", example="holdfast evidence show studio-1 --limit 20")(show.show)
app.command("export", example="holdfast evidence export studio-1 --to backup")(export.export)
app.command("asrun", example="holdfast evidence asrun studio-1 --to logs")(export.asrun)
app.command("seal", example="holdfast evidence seal studio-1 20260117-a")(ownership.seal)
app.command("set-owner", example="holdfast evidence set-owner studio-1 studio")(ownership.set_owner)
app.add_typer(dead_letter.app, name="dead-letter")
