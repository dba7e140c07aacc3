"""One grammar: every command has an example that is true, `-h`, `--json`, and options that mean the same everywhere."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command_tree import ALL, LEAVES, ROOT, run_here

NO_NOUN = {
    "demo": "the first thing one tries",
    "init": "makes the node that all nouns belong to",
    "up": "runs that node",
    "status": "shows that node",
    "top": "shows that node",
    "doctor": "checks that node",
    "dashboard": "shows that node",
    "events": "follows that node",
    "models": "is a noun with one verb, list",
    "verify": "needs no node at all",
    "version": "is of the program, not of a node",
}
NO_JSON = {
    **dict.fromkeys(
        ("dashboard", "demo", "up", "agent run", "gateway serve", "follow run", "spool ship"),
        "it runs on and logs; log.format is json",
    ),
    **dict.fromkeys(("job output", "result read"), "it writes the bytes of an output"),
    **{words: "JSON in, JSON out" for words in LEAVES if words.startswith("compute ")},
}
IRREVERSIBLE = (
    "chain rollback",
    "db archive delete",
    "gateway key revoke",
    "key revoke",
    "provider retire",
    "spool seal",
)
OF_A_FOLDER = {
    "agent": "it is the agent's folder",
    "gateway": "it is the gateway's folder",
    "follow": "it is the follower's folder",
    "tls": "it writes keys into the node's folder",
    "db": "it reads and writes the stores themselves",
    **dict.fromkeys(("demo", "up"), "it runs the node"),
    "doctor": "it looks at the machine, too",
    "archive key export": "the key does not leave the machine by itself",
    **dict.fromkeys(("audit match", "chain replay"), "it folds the journal itself, and believes no node"),
}
"""Commands that need a folder, by their first words; all others that take one also take a node's address."""
NODE_OPTIONS = {"--data", "--url", "--token-file", "--ca"}
RETIRED_OPTIONS = {"--cursor", "--out", "--force", "--page"}
SAME_EVERYWHERE = ("--url", "--token-file", "--wide", "--yes", "--oldest-first", "--config")
METAVAR = re.compile(r"[A-Za-z±\[][A-Za-z0-9_:=|/.…\-\[\]]*")
PYTHON_TYPES = re.compile(r"<|\b(str|int|float|bool|path|list|Path|None|range)\b")


def options_of(command: Any) -> dict[str, Any]:
    return {name: param for param in command.params for name in param.opts if name.startswith("--")}


def examples_of(command: Any) -> list[str]:
    lines = (command.epilog or "").splitlines()
    return [line.strip() for line in lines if line.startswith("  ")]


def typed_command(line: str) -> tuple[str, list[str]]:
    """The command in a line, without what the shell does with it, and the words behind it."""
    line = next(part.strip() for part in line.split("|") if part.strip().startswith("holdfast "))
    typed = shlex.split(re.split(" [<>] ", line)[0])[1:]
    if typed[0] == "agent" and typed[1].startswith("-"):  # a group that does one thing unless told otherwise
        typed.insert(1, "run")
    name = next(each for each in sorted(LEAVES, key=len, reverse=True) if typed[: len(each.split())] == each.split())
    return name, typed[len(name.split()) :]


@pytest.mark.rule("RPC-001")
@pytest.mark.parametrize("words", LEAVES)
def test_every_command_has_an_example_that_can_be_typed(words: str) -> None:
    typed = [typed_command(line) for line in examples_of(LEAVES[words])]
    assert words in {name for name, _ in typed}
    for name, rest in typed:
        LEAVES[name].make_context(name, rest)


def test_an_example_with_a_misspelt_option_is_seen() -> None:
    with pytest.raises(Exception, match="--limt"):
        LEAVES["job list"].make_context("job list", ["--limt", "3"])


@pytest.mark.rule("RPC-001")
def test_every_command_and_group_explains_itself_by_h_as_by_help() -> None:
    assert [
        words for words, found in ALL.items() if found.context_settings["help_option_names"] != ["-h", "--help"]
    ] == []
    assert run_here("job", "list", "-h") == run_here("job", "list", "--help")
    assert "Example:\n    holdfast job list" in run_here("job", "list", "-h").out


@pytest.mark.rule("RPC-001")
def test_every_command_prints_json_or_is_excused_with_a_reason() -> None:
    without = {words for words, found in LEAVES.items() if "--json" not in options_of(found)}
    assert without == NO_JSON.keys()


@pytest.mark.rule("RPC-001")
def test_a_command_is_a_noun_and_a_verb_or_is_excused_with_a_reason() -> None:
    assert {words for words in LEAVES if " " not in words} == NO_NOUN.keys()


@pytest.mark.rule("RPC-001")
def test_values_have_names_that_a_person_reads() -> None:
    faults = []
    for words, found in ALL.items():
        for param in found.params:
            is_flag = getattr(param, "is_flag", False)
            metavar = "" if is_flag else param.metavar or f"<{param.name}>"
            if not is_flag and (PYTHON_TYPES.search(metavar) or not METAVAR.fullmatch(metavar)):
                faults.append(f"{words} {param.name}: {metavar}")
    assert faults == []


@pytest.mark.rule("RPC-001")
def test_help_shows_no_python_type() -> None:
    shown = "".join(
        found.get_help(found.context_class(found, info_name=words, **found.context_settings))
        for words, found in ALL.items()
    )
    assert re.findall(r"<[a-z][a-z \[\]]*>|None|typing|\{[A-Z_…]+\}", shown) == []
    assert run_here("job", "show", "-h").out.startswith("Usage: holdfast job show [OPTIONS] TASK_ID\n")


@pytest.mark.rule("RPC-001")
def test_an_option_means_the_same_in_every_command() -> None:
    options = {words: options_of(found) for words, found in LEAVES.items()}
    assert [words for words, each in options.items() if RETIRED_OPTIONS & each.keys()] == []
    partial = [words for words, each in options.items() if "--url" in each and not each.keys() >= NODE_OPTIONS]
    assert partial == [], "they name a node by some of its options"
    local = [words for words, each in options.items() if "--data" in each and "--url" not in each]
    assert [words for words in local if words.split()[0] not in OF_A_FOLDER and words not in OF_A_FOLDER] == []
    for name in SAME_EVERYWHERE:
        assert len({each[name].help for each in options.values() if name in each}) == 1, name
    pages = [words for words, each in options.items() if "--after" in each and "--limit" not in each]
    assert pages == ["spool replay"], "it follows to the end"


@pytest.mark.rule("RPC-001")
def test_lists_begin_with_the_newest_and_can_begin_with_the_oldest() -> None:
    lists = {words for words, found in LEAVES.items() if "--oldest-first" in options_of(found)}
    assert lists == {
        "key list",
        "job list",
        "job dead-letter list",
        "evidence dead-letter list",
        "account reservations",
        "account transfers",
        "chain list",
        "gateway key list",
        "job schedule list",
        "result list",
        "audit log",
    }


@pytest.mark.rule("RPC-001")
def test_choices_are_read_in_any_case() -> None:
    for found in ALL.values():
        for param in found.params:
            descriptor = param.type_descriptor
            assert descriptor.choices is None or not descriptor.case_sensitive, param.name
    context = LEAVES["job list"].make_context("job list", ["--status", "failed", "--kind", "ai"])
    assert (context.params["status"], context.params["kind"]) == ("FAILED", "AI")


@pytest.mark.rule("RPC-001")
def test_what_cannot_be_undone_is_asked_about_and_refused_by_name_without_a_terminal(tmp_path: Path) -> None:
    assert [words for words, found in LEAVES.items() if "--yes" in options_of(found)] == sorted(
        IRREVERSIBLE, key=[*LEAVES].index
    )
    ended = run_here("provider", "retire", "oak", "--data", tmp_path)
    assert (ended.code, ended.out) == (1, "")
    assert "Retire provider oak for good?" in ended.err
    assert "--yes" in ended.err


@pytest.mark.rule("RPC-001")
def test_the_first_word_is_completed_without_loading_the_commands() -> None:
    assert [item.value for item in ROOT.shell_complete(None, "pro")] == ["provider"]
    assert {"--install-completion", "--show-completion", "--version"} <= options_of(ROOT).keys()


# ------------------------------------------------------------------------------------------------ bad input

RUN_ON = {
    "dashboard",
    "demo",
    "up",
    "agent run",
    "gateway serve",
    "follow run",
    "spool ship",
    "spool adopt",
    "init",
    "agent init",
}
"""They would begin to work where everything is given."""
CODES = {0, 1, 2, 65, 74, 75, 77}


def bad_inputs(words: str) -> list[list[str]]:
    """An option that does not exist, too many words, values that are none, and an address that is none."""
    command = LEAVES[words]
    tries = [["--no-such-option"], ["one", "word", "too", "many", "for", "anything"] * 3]
    if words in RUN_ON:
        return tries
    needed = [param for param in command.params if param.required]
    junk = [word for each in needed for word in (*(each.opts[:1] if each.param_type_name == "option" else ()), "☃")]
    return [*tries, junk, [*junk, "--url", "☃"]] if "--url" in options_of(command) else [*tries, junk]


@pytest.mark.rule("RPC-001")
def test_bad_input_gets_a_sentence_and_never_a_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TIMEOUT_S", "STARTING_S"):
        monkeypatch.setattr(f"holdfast.cli.terminal.node_client.{name}", 0.0)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    faults = []
    for words in LEAVES:
        for given in bad_inputs(words):
            try:
                ended = run_here(*words.split(), *given)
            except Exception as fault:
                faults.append(f"{words} {given}: {fault!r}")
                continue
            if ended.code not in CODES or not (ended.out + ended.err).strip() or "Traceback" in ended.err:
                faults.append(f"{words} {given}: {ended}")
    assert faults == []
