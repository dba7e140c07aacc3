"""`holdfast spool`: look at spools, check and repair them, beside a running agent or without one."""

from __future__ import annotations

from holdfast.cli import verb
from holdfast.cli.spool import check, keep, look

app = verb(no_args_is_help=True, help="Look after spools: the durable outboxes of evidence.")
app.command("ls")(look.ls)
app.command("show")(look.show)
app.command("verify")(check.verify)
app.command("repair")(check.repair)
app.command("replay")(look.replay)
app.command("compact")(keep.compact)
app.command("seal")(keep.seal)
app.command("tail")(look.tail)
