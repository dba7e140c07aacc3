"""`holdfast provider`: who does the work, what they have at stake, and what an operator does about them."""

from __future__ import annotations

from holdfast.cli import verb
from holdfast.cli.provider import lists, look, moves, register, stake

app = verb(no_args_is_help=True, help="Who does the work, what they have at stake, and what to do about them.")
app.command("register")(register.register)
app.command("list")(look.list_)
app.command("show")(look.show)
app.command("why-not")(look.why_not)
app.command("stake")(stake.stake)
app.command("unstake")(stake.unstake)
app.command("drain")(moves.drain)
app.command("undrain")(moves.undrain)
app.command("retire")(moves.retire)
app.command("jail")(moves.jail)
app.command("unjail")(moves.unjail)
app.command("suspend")(moves.suspend)
app.command("recover")(moves.recover)
app.command("allow")(lists.allow)
app.command("deny")(lists.deny)
app.command("unlist")(lists.unlist)
app.command("lists")(lists.lists)
