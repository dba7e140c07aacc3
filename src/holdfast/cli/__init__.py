"""The command line: `holdfast VERB`. A verb is one module and one line in `VERBS`; only the called one is imported.

The module `cli/VERB.py`, or the package `cli/VERB/`, has a `typer.Typer` named `app`, created by `make_app()`.
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

from holdfast.__about__ import __version__

VERBS: Final = {
    "demo": "kill an agent and the node within a minute, and prove that every job has one result",
    "init": "create what a node needs: folder, key, settings",
    "up": "run a node",
    "status": "show node status",
    "key": "create and revoke API keys for people and programs",
    "tls": "create certificates for the node's network APIs",
    "job": "submit jobs to the queue, show and cancel them",
    "queue": "show the queue, pause and resume kinds of jobs",
    "models": "list what providers offer, at which price, and how long one waits",
    "top": "show the network in the terminal, live",
    "dashboard": "show the page of a node, here or far away, in a browser on this machine",
    "result": "read a job's result and get a proof of it",
    "verify": "check a result's proof offline",
    "gc": "delete bytes and records that retention no longer needs, or show what it would delete",
    "provider": "show providers and their stake, and change their status",
    "agent": "run a provider's agent: take leases, run jobs, submit results",
    "spool": "inspect and repair an agent's durable outbox",
    "evidence": "show the evidence that agents delivered, and records that were rejected",
    "policy": "show the policy that counts, adopt another one, list earlier ones",
    "account": "show accounts and move money",
    "events": "follow the journal's events from any point",
    "chain": "show, export, verify and roll back the chain",
    "audit": "show privileged actions, and check that jobs were assigned by the rules",
    "doctor": "check a node's folder, keys, disk, clock, store and network APIs",
    "db": "check, rebuild, archive, export and import the stored data",
    "blob": "show, fetch, audit and prune the blobs in which results are archived",
    "validator": "show and change who may propose blocks and archive their blobs",
    "follow": "keep headers, leaves, blobs and notices of a chain, checked, without its journal",
    "archive": "show how far the archive is, and export its key",
    "gateway": "run an archive that speaks the API of load-s3-agent, and check what it stores",
    "compute": "recompute any id, order or delay offline, from JSON on standard input",
    "version": "print the version, and what a bug report needs",
}
"""Every verb with its one-line help. It stands here so that `--help` imports no verb."""


class _LazyHelp:
    """Avoids importing pydantic, a tenth of a second, which typer needs to convert the default of an absent `--help`.

    A default that is already a boolean is not converted. Verbs with arguments still pay for the import.
    """

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            option.default = False
        return option


class VerbCommand(_LazyHelp, TyperCommand):
    """One command."""


class VerbGroup(_LazyHelp, TyperGroup):
    """Several commands below one name."""


class LazyVerbs(VerbGroup):
    """Imports `holdfast.cli.VERB` when it is called, so that a small verb starts fast."""

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
        self.commands = dict.fromkeys(VERBS, self)  # only the keys are read, to suggest a verb for a misspelt one
        return super().resolve_command(ctx, args)


def make_app(cls: type[VerbGroup] = VerbGroup, **options: Any) -> typer.Typer:
    """An app with plain help and plain errors: importing rich takes longer than most verbs."""
    return typer.Typer(cls=cls, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **options)


app = make_app(LazyVerbs, no_args_is_help=True)


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
    """Run compute jobs on providers you do not control; keep everything until its next custodian provably holds it."""


def main() -> None:
    """Entry point of the command `holdfast`. It ends quietly when the reader of its output is gone (`| head`)."""
    _open_streams()
    try:
        try:
            app(prog_name="holdfast")
        finally:
            sys.stdout.flush()  # here, where a failure can still be reported, not during interpreter shutdown
    except KeyboardInterrupt:
        sys.exit(130)
    except UnicodeEncodeError as fault:
        # Bytes of an argument that are not text can only be the name of a file.
        print(f"holdfast: {fault.object!a:.80} is not UTF-8 text (write it in UTF-8)", file=sys.stderr)
        sys.exit(2)
    except OSError as fault:
        if not isinstance(fault, BrokenPipeError):
            print(f"holdfast: {fault}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still buffered is dropped
        sys.exit(1)


def _open_streams() -> None:
    """Open standard streams that are closed, and escape characters that the terminal's encoding does not have."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # started closed: no other file may get its descriptor
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - it stays
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
