"""How every verb reports: all faults of the settings at once, an error as one sentence with a hint and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from errno import EADDRINUSE
from pathlib import Path
from typing import NoReturn, TypeVar

import typer

from holdfast.api.error_codes import ERROR_CODES, RESULT_ERRORS, error_reply
from holdfast.app.log_output import configure_logging
from holdfast.cli.exit_codes import BAD_INPUT, UNAVAILABLE
from holdfast.client import NodeRefused, NodeUnreachable, WaitTimeout
from holdfast.client.node_url import TOKEN_VARIABLE
from holdfast.config import Config, load, why_not_store
from holdfast.core.base.errors import Corrupt, Refused, Unavailable

T = TypeVar("T")


def load_settings(file: Path | None, flags: Mapping[str, object], *, with_stores: bool = False) -> Config:
    """The settings, or every fault in them on standard error and exit code 2.

    `with_stores` also checks that journal and tables can be opened with them, and configures logging.
    """
    loaded = load(file, os.environ, flags)
    if with_stores and isinstance(loaded, Config) and (refusal := why_not_store(loaded)):
        loaded = [refusal]
    if isinstance(loaded, Config):
        if with_stores:  # a verb that only calls a node logs nothing
            configure_logging(loaded.log)
        return loaded
    for fault in loaded:
        print(f"holdfast: {fault}", file=sys.stderr)
    raise typer.Exit(BAD_INPUT)


@contextmanager
def report_errors() -> Iterator[None]:
    """Run what may fail: an error becomes one sentence and its exit code, never a traceback."""
    try:
        yield
    except (Unavailable, Corrupt) as fault:
        reply = error_reply(fault)
        print(f"holdfast: {reply}", file=sys.stderr)
        raise typer.Exit(reply.codes.exit) from None
    except NodeRefused as fault:
        name = f"{fault.name}: " if fault.name in RESULT_ERRORS else ""
        print(f"holdfast: {name}{_printable(_for_terminal(fault))}", file=sys.stderr)
        raise typer.Exit(ERROR_CODES[fault.name].exit if fault.name in ERROR_CODES else 1) from None
    except WaitTimeout as fault:
        print(f"holdfast: {fault} (it goes on: `holdfast job wait` waits again)", file=sys.stderr)
        raise typer.Exit(UNAVAILABLE) from None
    except NodeUnreachable as fault:
        print(f"holdfast: {_printable(fault)}\n  {_connection_hint(str(fault))}", file=sys.stderr)
        raise typer.Exit(UNAVAILABLE) from None
    except OSError as fault:
        if (message := _describe_os_error(fault)) is None:
            raise  # of a stream: `main` ends quietly when the reader of our output is gone
        print(f"holdfast: {message}", file=sys.stderr)
        raise typer.Exit(UNAVAILABLE) from None


_CONNECTION_HINTS = {
    "CERTIFICATE_VERIFY_FAILED": "pass the CA that signed the node's certificate: --ca ca.pem",
    "WRONG_VERSION_NUMBER": "that port speaks no TLS: write http:// instead of https://",
    "disconnected": "that port may want TLS: write https:// and pass --ca ca.pem",
    "no folder": "create one with: holdfast init; or name another: --data DIR",
    "not a node": "check the address and the port: the node logs where it listens",
}
"""What to do about a connection that fails, by words of the fault."""


def _connection_hint(fault: str) -> str:
    hints = (hint for words, hint in _CONNECTION_HINTS.items() if words in fault)
    return next(hints, "is a node running there? start one with: holdfast up")


def _for_terminal(fault: NodeRefused) -> str:
    """A node says what its HTTP clients send; a command takes its key from a variable or a file."""
    if fault.name != "Unauthorized" or "Bearer" not in fault.hint:
        return str(fault)
    hint = f"put a key's token into {TOKEN_VARIABLE}, or pass --token-file FILE"
    return f"{fault.rule}: {fault.message} ({hint})"


def _printable(fault: Exception | str) -> str:
    """Text of another program without characters that control the terminal."""
    return "".join(char if char.isprintable() else "?" for char in str(fault))


def _describe_os_error(fault: OSError) -> str | None:
    if fault.errno == EADDRINUSE:
        return f"{fault.strerror} (choose another port, or stop the program that uses it)"
    if fault.filename is None:
        return None
    return f"{fault.strerror}: {os.fsdecode(fault.filename)} (check the path, its permissions and the disk's space)"


def value_or_exit(answer: T | Refused) -> T:
    """The answer; a refusal becomes one sentence and its exit code."""
    return refuse(answer) if isinstance(answer, Refused) else answer


def refuse(refusal: Refused) -> NoReturn:
    """Print the refusal and exit with its code."""
    reply = error_reply(refusal)
    print(f"holdfast: {reply}", file=sys.stderr)
    raise typer.Exit(reply.codes.exit)


def confirm(question: str, rule: str, *, yes: bool) -> None:
    """Go on after `--yes` or an answer of yes; anything else changes nothing and ends the command."""
    if yes:
        return
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        refuse(
            Refused(
                rule, f"{question} There is no terminal to ask on", "pass --yes: it cannot be undone", "NotConfirmed"
            )
        )
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        refuse(Refused(rule, "nothing was changed", "answer y, or pass --yes", "NotConfirmed"))


def format_finding(is_good: bool, what: str, message: str, hint: str = "") -> str:
    """One check and its outcome, with the glyphs used everywhere: ✔ good, ▲ needs attention."""
    line = f"{'✔' if is_good else '▲'} {what:<12} {message}"
    return f"{line}\n{'':<15}→ {hint}" if hint else line
