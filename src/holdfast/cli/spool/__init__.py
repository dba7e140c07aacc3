"""`holdfast spool`: inspect, check and repair spools, with a running agent or a stopped one."""

from __future__ import annotations

from holdfast.cli import make_app
from holdfast.cli.spool import adopt, check, maintain, ship, show

app = make_app(no_args_is_help=True, help="Inspect and repair spools: the durable outboxes of evidence.")
app.command("list")(show.list_)
app.command("show")(show.show)
app.command("verify")(check.verify)
app.command("repair")(check.repair)
app.command("replay")(show.replay)
app.command("compact")(maintain.compact)
app.command("seal")(maintain.seal)
app.command("tail")(show.tail)
app.command("ship")(ship.ship)
app.command("adopt")(adopt.adopt_command)
