"""The command line: `holdfast VERB`. A verb is one file here and one line in `VERBS`; only the one asked for is loaded.

The file `cli/VERB.py` has a `typer.Typer` named `app`, made by `verb()`.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from holdfast import __version__

VERBS: Final = {
    "demo": "less than a minute: an agent and the node are killed, and every job has one result",
    "init": "make what a node needs: folder, key, settings",
    "up": "run a node",
    "status": "how a running node is",
    "key": "let people and programs in over the network",
    "tls": "certificates for the doors",
    "job": "hand work to the queue and look after it",
    "queue": "how much waits, and kinds of work that are stopped for a while",
    "result": "what came out of a job, and a proof of it",
    "verify": "check a result's proof offline",
    "gc": "let results' bytes and records go, or see what would go",
    "provider": "who does the work, and what they have at stake",
    "agent": "run a provider's agent: take work, do it, hand it in",
    "spool": "look into an agent's durable outbox",
    "evidence": "what agents have told, and records that were refused for good",
    "account": "look at money and move it",
    "events": "follow what happens, from any point",
    "chain": "look at the chain, carry it away, check it, take it back",
    "audit": "who did what others may not, and whether work was given out by the rules",
    "doctor": "check what a node stands on",
    "db": "work on the stored data",
    "compute": "recompute any id, order or delay offline, from JSON on standard input",
}
"""What can be said, and what it does: the help reads it here, so that asking for help loads no verb."""


class _Quick:
    """Starts without pydantic: typer loads it, for a tenth of a second, to find that an absent `--help` is absent.

    An option that has a boolean already is left alone. A verb that takes arguments pays for them; one without need not.
    """

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            option.default = False
        return option


class Command(_Quick, TyperCommand):
    """One thing to do."""


class Group(_Quick, TyperGroup):
    """Several things to do under one name."""


class Verbs(Group):
    """Loads `holdfast.cli.VERB` when it is called by its name, so that a small verb starts fast."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        command = typer.main.get_command(import_module(f"holdfast.cli.{cmd_name}").app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        self.commands = dict.fromkeys(VERBS, self)  # only its keys are read: what it suggests when a verb is misspelt
        return super().resolve_command(ctx, args)


def verb(cls: type[Group] = Group, **options: Any) -> typer.Typer:
    """An app as every verb has it: plain help and plain errors, since importing rich costs more than most answers."""
    return typer.Typer(cls=cls, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **options)


app = verb(Verbs, no_args_is_help=True)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"holdfast {__version__}")
        raise typer.Exit


@app.callback(subcommand_metavar="VERB …")
def _holdfast(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Runs compute jobs on providers nobody controls, and never lets go until the next hand provably holds it."""


def main() -> None:
    """What the command `holdfast` runs. A reader that went away (`| head`) ends it quietly, as it does other tools."""
    _open_streams()
    try:
        try:
            app(prog_name="holdfast")
        finally:
            sys.stdout.flush()  # here, where a failure can still be told, not while the interpreter goes down
    except KeyboardInterrupt:
        sys.exit(130)
    except UnicodeEncodeError as fault:
        # Bytes of an argument that are no text: they can be a file's name, nothing else.
        print(f"holdfast: {fault.object!a:.80} is not UTF-8 text (say it in UTF-8)", file=sys.stderr)
        sys.exit(2)
    except OSError as fault:
        if not isinstance(fault, BrokenPipeError):
            print(f"holdfast: {fault}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still buffered has nowhere to go
        sys.exit(1)


def _open_streams() -> None:
    """Somewhere to speak to, however the process was started; a sign that a terminal cannot show is spelt out."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # started without it: nobody reads, and nothing else may get its number
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - it stays
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
