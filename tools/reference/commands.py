"""The command line, from the tree of its commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import typer
from tools.reference.markdown import code, head, table, wrapped

from holdfast.cli import VERBS, app

ABOUT: Final = "`holdfast VERB --help` says the same. What is in brackets may be left out."


def page() -> str:
    root = typer.main.get_command(app)
    parts = [head("Command line", ABOUT)]
    parts.append(table(("verb", "what it does"), ((f"[{verb}](#{verb})", about) for verb, about in VERBS.items())))
    for verb in VERBS:
        parts.append(f"## {verb}\n")
        parts += [_section(path, command) for path, command in _commands(_child(root, verb), [verb])]
    return "\n".join(parts)


def _child(group: Any, name: str) -> Any:
    return group.get_command(typer.Context(group), name)


def _commands(command: Any, path: list[str]) -> Iterator[tuple[list[str], Any]]:
    """A command and those below it; a group that does something itself comes first."""
    children = command.list_commands(typer.Context(command)) if hasattr(command, "list_commands") else []
    if not children or command.invoke_without_command:
        yield path, command
    for name in children:
        yield from _commands(_child(command, name), [*path, name])


def _section(path: list[str], command: Any) -> str:
    name = " ".join(("holdfast", *path))
    context = typer.Context(command, info_name=name)
    usage = " ".join((name, *command.collect_usage_pieces(context)))
    records = [
        (getattr(param, "param_type_name", ""), record)
        for param in command.get_params(context)
        if (record := param.get_help_record(context)) is not None and "--help" not in record[0]
    ]
    rows = [(code(_plain(names)), _prose(text)) for kind, (names, text) in records]
    about = _prose(command.help or command.short_help or "", keep_paragraphs=True)
    told = [about, table(("argument or option", "meaning"), rows)] if rows else [about, ""]
    title = [f"### {name}\n"] if len(path) > 1 else []
    return "\n".join([*title, f"```\n{usage}\n```\n", *told])


def _plain(names: str) -> str:
    return " ".join(names.split())


def _prose(text: str, *, keep_paragraphs: bool = False) -> str:
    """Help texts wrap where the terminal does; here a paragraph is one line."""
    paragraphs = re.split(r"\n\s*\n", text.replace("\b", "").strip())
    joined = [_escape(" ".join(each.split())) for each in paragraphs]
    return "\n\n".join(wrapped(each) for each in joined) + "\n" if keep_paragraphs else " ".join(joined)


def _escape(text: str) -> str:
    return re.sub(r"<(?=[a-z/])", "&lt;", text)
