"""`holdfast spool`: inspect, check and repair spools, with a running agent or a stopped one."""

from __future__ import annotations

from holdfast.cli import make_app
from holdfast.cli.spool import adopt, check, maintain, ship, show

app = make_app(no_args_is_help=True, help="Inspect and repair spools: the durable outboxes of evidence.")
app.command("list", example="holdfast spool list ./oak/spool")(show.list_)
app.command("show", example="holdfast spool show spool/studio-1/20260117-a.spool.jsonl")(show.show)
app.command("verify", example="holdfast spool verify spool/studio-1/20260117-a.spool.jsonl")(check.verify)
app.command("repair", example="holdfast spool repair spool/studio-1/20260117-a.spool.jsonl")(check.repair)
app.command("replay", example="holdfast spool replay spool/studio-1/20260117-a.spool.jsonl --after 1200")(show.replay)
app.command("compact", example="holdfast spool compact spool/studio-1/20260117-a.spool.jsonl")(maintain.compact)
app.command("seal", example="holdfast spool seal spool/studio-1/20260117-a.spool.jsonl --yes")(maintain.seal)
app.command("tail", example="holdfast spool tail spool/studio-1/20260117-a.spool.jsonl --follow")(show.tail)
app.command("ship", example="holdfast spool ship ./spool --to 127.0.0.1:8452 --protocol holdfast --agent-data ./oak")(
    ship.ship
)
app.command("adopt", example="holdfast spool adopt ./spool --watch-s 10")(adopt.adopt_command)
