"""Where a rule is defined, named and proven, read from the pages of docs/spec and from syntax trees."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
SPEC: Final = ROOT / "docs" / "spec"

ID: Final = re.compile(r"\b[A-Z]{2,4}(?:-[A-Z]+)?-\d{3}\b")
ROW: Final = re.compile(rf"^\|\s*({ID.pattern})\s*\|")
NOT_RULES: Final = frozenset({"ANS-104", "AES-128", "AES-256", "SHA-224", "SHA-256", "SHA-384", "SHA-512"})
"""Looks like a rule's id, is the name of a cipher, a hash or a format."""


def rules_in(page: str) -> list[str]:
    """The rules that a page defines: the first cell of its table rows, in order, repeats kept."""
    return [row[1] for line in page.splitlines() if (row := ROW.match(line))]


def rules_of_spec() -> list[str]:
    """Every rule of docs/spec, page by page."""
    return [rule for page in sorted(SPEC.glob("*.md")) for rule in rules_in(page.read_text("utf-8"))]


def named_in(source: str) -> set[str]:
    """The ids in string constants, docstrings included: a comment can rot without anyone noticing, so it counts not."""
    strings = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return {rule for text in strings if isinstance(text, str) for rule in ID.findall(text)} - NOT_RULES


def proven_in(source: str) -> set[str]:
    """The ids that tests are marked with: by a decorator, by `pytestmark`, or in the marks of one parameter set."""
    return {rule for mark in _marks(ast.parse(source)) for rule in _args_of_rule(mark)}


def _marks(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test"):
                yield from node.decorator_list
            case ast.ClassDef(name=name) if name.startswith("Test"):
                yield from node.decorator_list
            case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
                yield from _each(value)
            case ast.keyword(arg="marks", value=value):
                yield from _each(value)


def _each(value: ast.expr) -> list[ast.expr]:
    return value.elts if isinstance(value, ast.List | ast.Tuple) else [value]


def _args_of_rule(mark: ast.expr) -> Iterator[str]:
    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.rule":
        for arg in mark.args:
            if isinstance(arg, ast.Constant) and isinstance(arg.value, str):
                yield arg.value
