"""`holdfast job`: submit jobs to the queue, now or by a schedule, show and cancel them, requeue failed ones."""

from __future__ import annotations

from holdfast.cli import make_app
from holdfast.cli.job import dead_letter, enqueue, logs, output, quote, run, schedule, show, update

app = make_app(no_args_is_help=True, help="Submit jobs to the queue, show and cancel them.")
app.add_typer(dead_letter.app, name="dead-letter")
app.add_typer(schedule.app, name="schedule")
app.command("run", example="holdfast job run --runtime wc --input notes.txt --caller alice")(run.run)
app.command("quote", example="holdfast job quote --model echo --max-fee 50")(quote.quote)
app.command("enqueue", example='holdfast job enqueue --model echo --prompt "hello" --caller alice')(enqueue.enqueue)
app.command("show", example="holdfast job show 3f9c0a1b --events")(show.show)
app.command("list", example="holdfast job list --caller alice --status failed --limit 20")(show.list_)
app.command("wait", example="holdfast job wait 3f9c0a1b --timeout 10m --output result.bin")(run.wait)
app.command("logs", example="holdfast job logs 3f9c0a1b --follow")(logs.logs)
app.command("again", example="holdfast job again 3f9c0a1b --max-fee 200 --no-wait")(run.again)
app.command("output", example="holdfast job output 3f9c0a1b --output result.bin")(output.output)
app.command("cancel", example="holdfast job cancel 3f9c0a1b")(update.cancel)
app.command("raise-fee", example="holdfast job raise-fee 3f9c0a1b 200")(update.raise_fee)
