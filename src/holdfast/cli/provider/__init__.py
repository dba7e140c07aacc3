"""`holdfast provider`: providers, their stake, and what an operator does about them."""

from __future__ import annotations

from holdfast.cli import make_app
from holdfast.cli.provider import invite, operator_actions, register, rules, show, stake

app = make_app(no_args_is_help=True, help="Show providers and their stake, and change their status.")
app.command("register")(register.register)
app.command("invite")(invite.invite)
app.command("list")(show.list_)
app.command("show")(show.show)
app.command("explain")(show.explain)
app.command("stake")(stake.stake)
app.command("unstake")(stake.unstake)
app.command("drain")(operator_actions.drain)
app.command("undrain")(operator_actions.undrain)
app.command("retire")(operator_actions.retire)
app.command("jail")(operator_actions.jail)
app.command("unjail")(operator_actions.unjail)
app.command("suspend")(operator_actions.suspend)
app.command("recover")(operator_actions.recover)
app.command("allow")(rules.allow)
app.command("deny")(rules.deny)
app.command("unset-rule")(rules.unset_rule)
app.command("rules")(rules.rules)
