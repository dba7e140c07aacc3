"""Every command says what it does, and one that speaks to a node says what to do when there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from tests.loopback_ports import free_port
from typer.testing import CliRunner

from holdfast.cli import VERBS, app
from holdfast.cli.terminal import node_client

UNAVAILABLE = 75
ROOT: Any = typer.main.get_command(app)
ARGUMENTS = {
    "id_": "ab" * 32,
    "key": "ab" * 32,
    "task_id": "ab" * 32,
    "provider": "ab" * 32,
    "kind": "AI",
    "max_fee": "5",
    "amount": "5",
    "share": "0",
    "height": "1",
    "block": "1",
    "first": "1",
    "second": "2",
    "channel": "c",
    "session": "s",
    "owner": "alice",
    "payee": "bob",
    "reference": "wire-1",
    "reason": "an invoice",
    "to": "out",
    "schedule": "nightly",
}
"""Something for every argument that must be given."""
MORE_ARGUMENTS = {
    "job enqueue": ("--model", "m", "--prompt", "p"),
    "job run": ("--model", "m", "--prompt", "p", "--caller", "alice"),
    "job quote": ("ab" * 32,),
    "job schedule add": ("nightly", "--cron", "@daily", "--model", "m", "--prompt", "p", "--caller", "alice"),
    "job dead-letter requeue": ("ab" * 32,),
    "blob prune": ("--before", "1"),
    "blob fetch": ("ab" * 32, "--output", "fetched"),
    "chain rollback": ("--blocks", "1", "--yes"),
    "evidence set-owner": ("c", "somebody"),
    "evidence dead-letter show": ("1",),
    "evidence dead-letter resolve": ("1", "--note", "seen"),
    **dict.fromkeys(("provider allow", "provider deny", "provider unset-rule"), ("--region", "eu")),
}
"""What some need besides or instead."""
OFFLINE = {"chain verify", "policy apply"}
"""They look at files first."""

HINTS = {"agent": "agent run"}
"""A group that does one thing unless told otherwise says what that does."""


def commands(found: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command and every group of commands, by its words."""
    yield " ".join(path), found
    if isinstance(found, click.Group) or hasattr(found, "list_commands"):
        context = click.Context(found)
        for name in found.list_commands(context):
            yield from commands(found.get_command(context, name), (*path, name))


ALL = dict(commands())
LEAVES = {words: found for words, found in ALL.items() if not hasattr(found, "list_commands")}
NODE_COMMANDS = {
    words: found
    for words, found in LEAVES.items()
    if {"data", "url"} <= {each.name for each in found.params} and words not in OFFLINE
}


def run_cli(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*map(str, words)], prog_name="holdfast")
    return done.exit_code, done.output


def required_arguments(words: str) -> tuple[str, ...]:
    """Arguments and options without which a command does not start."""
    if words in MORE_ARGUMENTS and words != "job enqueue":
        return MORE_ARGUMENTS[words]
    told: list[str] = list(MORE_ARGUMENTS.get(words, ()))
    for each in LEAVES[words].params:
        if "--yes" in each.opts:
            told.append("--yes")
        if each.required:
            told += (
                [ARGUMENTS[each.name]] if each.param_type_name == "argument" else [each.opts[0], ARGUMENTS[each.name]]
            )
    return tuple(told)


@pytest.mark.rule("RPC-001")
@pytest.mark.parametrize("words", ALL)
def test_every_command_says_what_it_does_and_what_each_of_its_arguments_means(words: str) -> None:
    code, out = run_cli(*words.split(), "--help")
    assert (code, "Usage: holdfast" in out) == (0, True)
    found = ALL[HINTS.get(words, words)]
    assert (found.help or "").strip(), "it has no sentence"
    for each in found.params:
        assert getattr(each, "help", None), f"{each.name} is not explained"


def test_all_verbs_and_many_commands_were_checked() -> None:
    assert {words.split()[0] for words in LEAVES} == set(VERBS)
    assert len(NODE_COMMANDS) > 50


@pytest.mark.rule("RPC-001", "SEC-001")
@pytest.mark.parametrize("words", NODE_COMMANDS)
def test_a_command_that_finds_no_node_says_so_in_a_sentence_with_a_hint(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_client, "TIMEOUT_S", 0.0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for place in (("--data", tmp_path / "data"), ("--url", f"http://127.0.0.1:{free_port()}")):
        code, out = run_cli(*words.split(), *required_arguments(words), *place)
        assert code == UNAVAILABLE, out
        assert "holdfast up" in out
        assert "Traceback" not in out
    assert not list((tmp_path / "data").iterdir()), "asking makes nothing"


@pytest.mark.rule("ENG-001", "ENG-004")
@pytest.mark.parametrize("words", ["db check", "db rebuild", "db snapshot", "db export", "db archive", "chain replay"])
def test_a_folder_without_a_journal_is_named_and_nothing_is_made(words: str, tmp_path: Path) -> None:
    to = ("--to", tmp_path / "out") if words == "db export" else ()
    code, out = run_cli(*words.split(), "--data", tmp_path / "data", *to)
    assert (code, "no journal at" in out) == (UNAVAILABLE, True), out
    assert not [*tmp_path.iterdir()]
