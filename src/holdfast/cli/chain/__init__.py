"""`holdfast chain`: show the chain, export it, verify it anywhere, and roll it back on development networks."""

from __future__ import annotations

from holdfast.cli import make_app
from holdfast.cli.chain import export, replay, rollback, show, verify

app = make_app(no_args_is_help=True, help="Show, export, verify and roll back the chain.")
app.command("head", example="holdfast chain head")(show.head)
app.command("show", example="holdfast chain show 120")(show.show)
app.command("list", example="holdfast chain list --limit 20")(show.list_)
app.command("prove", example="holdfast chain prove 3f9c0a1b --wait > proof.json")(show.prove)
app.command("prove-consistency", example="holdfast chain prove-consistency 100 120 > growth.json")(
    show.prove_consistency
)
app.command("export", example="holdfast chain export headers --url https://node.example:8451")(export.export)
app.command("verify", example="holdfast chain verify headers")(verify.verify)
app.command("replay", example="holdfast chain replay")(replay.replay)
app.command("rollback", example="holdfast chain rollback --blocks 2 --yes")(rollback.rollback)
