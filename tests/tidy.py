"""Taste as functions over text: each returns what is wrong, line by line, and an empty list where nothing is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

LINES_MAX: Final = 400
FUNCTION_LINES_MAX: Final = 60

IMPURE_MODULES: Final = frozenset(
    {
        "asyncio",
        "datetime",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "random",
        "secrets",
        "shutil",
        "socket",
        "sqlite3",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "urllib",
        "uuid",
    }
)
IMPURE_CALLS: Final = frozenset({"eval", "exec", "float", "hash", "id", "input", "open", "print"})
EXCUSE: Final = "# tidy: "
"""A line of core that ends with this and a reason is excused from purity."""

VAGUE_NAMES: Final = frozenset({"util", "utils", "helper", "helpers", "manager", "managers", "common", "misc"})
UNFINISHED: Final = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
REGISTRY: Final = re.compile(
    r"index-" + r"url|--regis" + r"try|\"resolved\": *\"http|registry\.npm" + r"js|python" + r"hosted\.org"
    r"|pypi\.(org|python\.org)/sim" + r"ple|https?://[^ ]*(artifact" + r"ory|nex" + r"us|pro" + r"xy|mirr" + r"or)"
)
MACHINE_PATH: Final = re.compile(r"(^|[^A-Za-z0-9_.])/(work|farm|root)/")


def impure(source: str) -> list[str]:
    """What core must not do: read the world, draw chance, depend on the process, use floats."""
    lines = source.splitlines()
    found = [fault for node in ast.walk(ast.parse(source)) for fault in _impure_node(node)]
    return [f"line {line}: {says}" for line, says in sorted(found) if EXCUSE not in lines[line - 1]]


def _impure_node(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.Import(names=names, lineno=line):
            yield from ((line, f"imports {a.name}") for a in names if a.name.split(".")[0] in IMPURE_MODULES)
        case ast.ImportFrom(module=str(module), level=0, lineno=line) if module.split(".")[0] in IMPURE_MODULES:
            yield line, f"imports {module}"
        case ast.Call(func=ast.Name(id=name), lineno=line) if name in IMPURE_CALLS:
            yield line, f"calls {name}()"
        case ast.Constant(value=float() | complex(), lineno=line):
            yield line, "a float"
        case ast.BinOp(op=ast.Div(), lineno=line) | ast.AugAssign(op=ast.Div(), lineno=line):
            yield line, "a division that gives a float"


def too_long(source: str) -> list[str]:
    """Files and functions past the size at which they are split by idea."""
    found = []
    if (count := len(source.splitlines())) > LINES_MAX:
        found.append(f"{count} lines, at most {LINES_MAX}")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > FUNCTION_LINES_MAX:
                found.append(f"line {node.lineno}: {node.name} has {count} lines, at most {FUNCTION_LINES_MAX}")
    return found


def without_purpose(source: str) -> list[str]:
    """A module opens with what it is for: a first paragraph that is a sentence and says something."""
    doc = ast.get_docstring(ast.parse(source))
    if not doc:
        return ["no docstring"]
    opening = " ".join(doc.split("\n\n")[0].split())
    if not opening.endswith((".", ":")):
        return [f"the first sentence does not end: {opening!r}"]
    return [] if len(opening.split()) >= 4 else [f"the first sentence says nothing: {opening!r}"]


def vague(path: str) -> list[str]:
    """Names that could hold anything and therefore will."""
    return [part for part in path.removesuffix(".py").split("/") if set(part.split("_")) & VAGUE_NAMES]


def homeless(module: str, floors: frozenset[str]) -> list[str]:
    """A module `holdfast.x.y` lives on floor x of the house."""
    parts = module.split(".")
    return [] if len(parts) == 1 or parts[1] in floors else [f"{module} is on no floor"]


def lines_with(pattern: re.Pattern[str], text: str) -> list[str]:
    """Lines in which the pattern is found."""
    return [f"line {n}: {line.strip()[:100]}" for n, line in enumerate(text.splitlines(), 1) if pattern.search(line)]


def commands_missing(readme: str) -> list[str]:
    """The two commands that a reader must find on the first page."""
    return [command for command in ("make demo", "make test") if command not in readme]
