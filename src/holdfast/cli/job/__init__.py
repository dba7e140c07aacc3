"""`holdfast job`: submit jobs to the queue, now or by a schedule, show and cancel them, requeue failed ones."""

from __future__ import annotations

from holdfast.cli import make_app
from holdfast.cli.job import dead_letter, enqueue, logs, output, quote, run, schedule, show, update

app = make_app(no_args_is_help=True, help="Submit jobs to the queue, show and cancel them.")
app.add_typer(dead_letter.app, name="dead-letter")
app.add_typer(schedule.app, name="schedule")
app.command("run")(run.run)
app.command("quote")(quote.quote)
app.command("enqueue")(enqueue.enqueue)
app.command("show")(show.show)
app.command("list")(show.list_)
app.command("wait")(run.wait)
app.command("logs")(logs.logs)
app.command("again")(run.again)
app.command("output")(output.output)
app.command("cancel")(update.cancel)
app.command("raise-fee")(update.raise_fee)
