"""Exit codes are in one table, which the page for operators repeats."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rules import ROOT

from holdfast.api.error_codes import ERROR_CODES
from holdfast.cli import exit_codes
from holdfast.cli.exit_codes import EXIT_CODES, exit_code_table

CLI = ROOT / "src" / "holdfast" / "cli"


def numbers_of(path: Path) -> Iterator[int]:
    """Codes that a module writes as numbers where it ends."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("typer.Exit", "sys.exit"):
            yield from (
                each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and type(each.value) is int
            )


@pytest.mark.rule("RPC-001")
def test_every_error_and_every_command_ends_with_a_code_of_the_table() -> None:
    used = {codes.exit for codes in ERROR_CODES.values()} | {
        code for path in CLI.rglob("*.py") for code in numbers_of(path)
    }
    assert used <= EXIT_CODES.keys()
    named = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
    assert named == EXIT_CODES.keys()


@pytest.mark.rule("RPC-001")
def test_the_page_for_operators_has_the_table() -> None:
    assert any(exit_code_table() in page.read_text("utf-8") for page in (ROOT / "docs").rglob("*.md"))
