"""`holdfast provider`: providers, their stake, and what an operator does about them."""

from __future__ import annotations

from holdfast.cli import make_app
from holdfast.cli.provider import invite, operator_actions, register, rules, show, stake

app = make_app(no_args_is_help=True, help="Show providers and their stake, and change their status.")
app.command(
    "register", example="holdfast provider register oak.pem --node 127.0.0.1:8452 --name oak --account oak --model echo"
)(register.register)
app.command("invite", example="holdfast provider invite --days 3")(invite.invite)
app.command("list", example="holdfast provider list --status active")(show.list_)
app.command("show", example="holdfast provider show oak")(show.show)
app.command("explain", example="holdfast provider explain oak 3f9c0a1b")(show.explain)
app.command("stake", example="holdfast provider stake oak 1000 --mint")(stake.stake)
app.command("unstake", example="holdfast provider unstake oak 500")(stake.unstake)
app.command("drain", example="holdfast provider drain oak --reason maintenance")(operator_actions.drain)
app.command("undrain", example="holdfast provider undrain oak")(operator_actions.undrain)
app.command("retire", example="holdfast provider retire oak --yes")(operator_actions.retire)
app.command("jail", example='holdfast provider jail oak --blocks 100 --reason "wrong results"')(operator_actions.jail)
app.command("unjail", example="holdfast provider unjail oak")(operator_actions.unjail)
app.command("suspend", example='holdfast provider suspend oak --reason "under review"')(operator_actions.suspend)
app.command("recover", example="holdfast provider recover oak")(operator_actions.recover)
app.command("allow", example="holdfast provider allow oak")(rules.allow)
app.command("deny", example="holdfast provider deny --region eu-west")(rules.deny)
app.command("unset-rule", example="holdfast provider unset-rule oak")(rules.unset_rule)
app.command("rules", example="holdfast provider rules")(rules.rules)
