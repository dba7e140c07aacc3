"""The command line: `holdfast NOUN VERB`. A noun is a module and a line in `VERBS`; only the called one is imported.

The module `cli/NOUN.py`, or the package `cli/NOUN/`, has a `VerbApp` named `app`, created by `make_app()`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from holdfast.__about__ import __version__
from holdfast.cli.terminal.metavars import name_values

Verb = TypeVar("Verb", bound=Callable[..., Any])
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


class _PlainHelp:
    """What a command and a group share: plain help that starts fast and names values as a person does.

    A default that is already a boolean is not converted: so an absent `--help` does not import pydantic, a tenth of a
    second. Verbs with arguments still pay for the import. A flag of a verb may mean to be None: then settings count.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for param in self.params:  # type: ignore[attr-defined]
            name_values(param)

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False) and param.default is None and not param.expose_value:
                param.default = False
        return params


class VerbCommand(_PlainHelp, TyperCommand):
    """One command."""


class VerbGroup(_PlainHelp, TyperGroup):
    """Several commands below one name."""


class VerbApp(typer.Typer):
    """Every command has `-h`, values named for people, choices in any case, and an example below its help."""

    def command(self, name: str | None = None, *, example: str = "", **options: Any) -> Callable[[Verb], Verb]:
        """`example` is what a user types, one command a line; a test runs each against the command tree."""
        options = {"cls": VerbCommand, "context_settings": HELP_OPTIONS, **options}
        if example:
            options["epilog"] = "\b\n" + "\n".join(["Example:", *(f"  {line}" for line in example.splitlines())])
        return super().command(name, **options)


HELP_OPTIONS: Final = {"help_option_names": ["-h", "--help"]}


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
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The nouns without importing their modules, so that Tab answers at once."""
        from typer._click.shell_completion import CompletionItem  # noqa: PLC0415 - only a shell needs it

        words = [CompletionItem(name, help=help_) for name, help_ in VERBS.items() if name.startswith(incomplete)]
        return words if incomplete[:1] != "-" else super().shell_complete(ctx, incomplete)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        self.commands = dict.fromkeys(VERBS, self)  # only the keys are read, to suggest a verb for a misspelt one
        return super().resolve_command(ctx, args)


def make_app(cls: type[VerbGroup] = VerbGroup, *, add_completion: bool = False, **options: Any) -> VerbApp:
    """An app with plain help and plain errors: importing rich takes longer than most verbs."""
    return VerbApp(
        cls=cls,
        add_completion=add_completion,
        context_settings=HELP_OPTIONS,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        **options,
    )


app = make_app(LazyVerbs, add_completion=True, no_args_is_help=True)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"holdfast {__version__}")
        raise typer.Exit


@app.callback(subcommand_metavar="COMMAND …")
def _holdfast(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Run compute jobs on providers you do not control; keep everything until its next custodian provably holds it.

    Commands are `holdfast NOUN VERB`; `-h` after any of them explains it. HOLDFAST_URL and HOLDFAST_TOKEN name a node
    on another machine; without them commands speak to the node of ./holdfast-data.
    """


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
