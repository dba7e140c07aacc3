"""Words of broadcasting stand only where somebody looks who runs RetroVue."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from tests.cli.command_tree import ALL
from tests.rules import ROOT

BROADCASTING = re.compile(r"BLOCK_FENCE|\bas-run\b|\bAIRED\b|playout_session_id", re.IGNORECASE)
READERS = re.compile(r"RetroVue|v0\.1", re.IGNORECASE)
HISTORY = {"docs/decisions.md", "CHANGELOG.md"}
"""They tell what was, in the words of then."""


def sections(page: str) -> Iterator[str]:
    """Parts of a page between headings; a row of a table stands for itself."""
    for part in re.split(r"^#+ .*$", page, flags=re.MULTILINE):
        rows = [line for line in part.splitlines() if line.startswith("|")]
        yield from (row for row in rows if not READERS.search(part))
        yield "\n".join(line for line in part.splitlines() if not line.startswith("|"))


def misplaced(page: str) -> list[str]:
    if READERS.search(page.partition("\n")[0]):  # the page is theirs
        return []
    return [each for part in sections(page) for each in BROADCASTING.findall(part) if not READERS.search(part)]


@pytest.mark.rule("EVD-009")
def test_pages_use_words_of_broadcasting_only_for_those_who_run_it() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    faults = {
        page.relative_to(ROOT).as_posix(): words for page in pages if (words := misplaced(page.read_text("utf-8")))
    }
    assert {page: words for page, words in faults.items() if page not in HISTORY} == {}


def test_a_word_in_the_wrong_place_is_seen() -> None:
    assert misplaced("# Jobs\n\nA job ends with a BLOCK_FENCE.\n") == ["BLOCK_FENCE"]
    assert misplaced("# RetroVue\n\nSenders of RetroVue end a session with a BLOCK_FENCE.\n") == []


@pytest.mark.rule("EVD-009")
def test_help_uses_words_of_broadcasting_only_where_it_names_retrovue() -> None:
    for words, command in ALL.items():
        texts = [command.help or "", *(getattr(param, "help", None) or "" for param in command.params)]
        assert [text for text in texts if BROADCASTING.search(text) and not READERS.search(text)] == [], words


@pytest.mark.rule("EVD-009")
def test_no_output_of_the_command_line_and_no_text_of_the_page_uses_them() -> None:
    faults = []
    for path in sorted((ROOT / "src" / "holdfast" / "cli").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                continue
            if BROADCASTING.search(node.value) and not READERS.search(node.value):
                faults.append(f"{path.name}:{node.lineno}")
    for path in sorted((ROOT / "page" / "src").rglob("*")):
        if path.is_file() and path.suffix in (".svelte", ".ts", ".js", ".html", ".css"):
            faults += [f"{path.name}: {each}" for each in BROADCASTING.findall(path.read_text("utf-8"))]
    assert faults == []
