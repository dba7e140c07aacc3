"""`holdfast evidence`: what agents have told, how far each session has come, and records that were refused for good."""

from __future__ import annotations

from holdfast.cli import verb
from holdfast.cli.evidence import carry, letters, look, owners

app = verb(no_args_is_help=True, help="What agents have told, and records that were refused for good.")
app.command("ls")(look.ls)
app.command("show")(look.show)
app.command("export")(carry.export)
app.command("asrun")(carry.asrun)
app.command("seal")(owners.seal)
app.command("assign")(owners.assign)
app.add_typer(letters.app, name="dead-letter")
