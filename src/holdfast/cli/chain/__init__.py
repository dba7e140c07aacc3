"""`holdfast chain`: look at the chain, carry it away, check it anywhere, and on development networks take it back."""

from __future__ import annotations

from holdfast.cli import verb
from holdfast.cli.chain import export, look, replay, rollback, verify

app = verb(no_args_is_help=True, help="Look at the chain, carry it away, check it, take it back.")
app.command("head")(look.head)
app.command("show")(look.show)
app.command("list")(look.list_)
app.command("prove")(look.prove)
app.command("prove-growth")(look.prove_growth)
app.command("export")(export.export)
app.command("verify")(verify.verify)
app.command("replay")(replay.replay)
app.command("rollback")(rollback.rollback)
