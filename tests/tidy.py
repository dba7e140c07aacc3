"""Taste as functions over text: each returns what is wrong, line by line, and an empty list where nothing is."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

LINES_MAX: Final = 400
FUNCTION_LINES_MAX: Final = 60
FOLDER_FILES_MAX: Final = 15
MARKDOWN_COLUMNS_MAX: Final = 140

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

LARGE_FOLDERS: Final[dict[str, str]] = {
    "tests/spool/crash": "one harness: each file is a part of the simulated disk, its histories or its invariants",
}
"""Folders that hold more than `FOLDER_FILES_MAX` files of Python, each with its reason. No other folder may."""

RETIRED: Final[dict[str, str]] = {
    # Persons, rooms and body parts that stood for parts of the program.
    r"sextons?|nurses?|weeders?|scribes?|tireless|tongues?": "the worker's name",
    r"doors?|doorsteps?": "API, server, endpoint",
    r"dut(?:y|ies)": "worker",
    r"desks?": "node access, agent context",
    r"switchboards?": "agent router",
    r"floors?(?! division)": "layer, lower bound",
    r"stations?(?! id)": "domain, stage",  # RetroVue has a segment type `station_id`
    r"house": "project",
    r"knobs?": "setting",
    r"(?:next|one|other|every|its|the) hands?(?! offs?)": "custodian",
    # Verbs and states.
    r"stir(?:s|red|ring)?": "notify, change signal",
    r"oust(?:s|ed|ing)?": "revoke",
    r"bur(?:y|ies|ied|ying)": "purge, dead letter",
    r"(?<!dead )letters|(?:its|the|that|this|every|each) letter": "dead letter, or alphanumeric characters",
    r"le?t(?:s|ting)? (?:\w+ )?go(?! only after the archive)(?: of)?": "delete, evict, release",  # the demo's sentence
    r"(?:take|takes|taken|taking|took) (?:\w+ )?back": "roll back, withdraw",
    r"(?:put|puts|putting) (?:\w+ )?back": "requeue, restore",
    r"hand in|hand(?:s|ed|ing) (?:\w+ ){0,2}in": "submit",
    r"hand(?:s|ed|ing)? (?:\w+ )?on to": "forward",
    r"photograph(?:s|ed|ing)?": "row image",
    # Things that have a name of their own in the field.
    r"chapters?": "archive segment",
    r"strays?": "orphan",
    r"noes": "refusals",
    r"(?<!a )lots?(?! of)": "run, sorted run, batch",
    r"(?:a|the|its|their|every|each|no|which|higher|lower|node s|receiver s) marks?": "watermark, deadline",
    r"nobod(?:y|ies)": "say who or what: no provider, no caller",
    r"so many": "say the number: N, at most N",
}
"""Words of the private dictionary that was given up, and what to write instead; docs/glossary.md has the words in use.

Each is matched in a line whose identifiers were split into words: `JobSexton` and `stirred_at` are seen, too."""

COMMITTED_BYTES_MAX: Final = 300_000
LARGE_FILES: Final = frozenset[str]()
"""Committed files that may be larger."""
DATA_ENDINGS: Final = r"(\.(log|sqlite|sqlite3|db|sock|socket|pid|lock|spool\.jsonl|journal)|-(wal|shm|journal))$"


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


def outside_layers(module: str, layers: frozenset[str]) -> list[str]:
    """A module `holdfast.x.y` belongs to layer x."""
    parts = module.split(".")
    return [] if len(parts) == 1 or parts[1] in layers else [f"{module} is in no layer"]


def lines_with(pattern: re.Pattern[str], text: str) -> list[str]:
    """Lines in which the pattern is found."""
    return [f"line {n}: {line.strip()[:100]}" for n, line in enumerate(text.splitlines(), 1) if pattern.search(line)]


def commands_missing(readme: str) -> list[str]:
    """The two commands that a reader must find on the first page."""
    return [command for command in ("make demo", "make test") if command not in readme]


# ------------------------------------------------------------------------------------------------ words and shape

_RETIRED: Final = {re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE): instead for pattern, instead in RETIRED.items()}
_ANY_RETIRED: Final = re.compile(rf"\b(?:{'|'.join(RETIRED)})\b")
"""All of them at once, for text in lower case: almost every file has none, and one pass over it says so."""
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATORS: Final = re.compile(r"[_’'-]")


def retired_words(text: str) -> list[str]:
    """Lines that use a word of the old private dictionary, in prose or inside an identifier."""
    if not _ANY_RETIRED.search(_as_words(text).casefold()):
        return []
    return [
        f"line {number}: {match[0]!r} is retired, write {instead}"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern, instead in _RETIRED.items()
        if (match := pattern.search(_as_words(line)))
    ]


def _as_words(line: str) -> str:
    return _SEPARATORS.sub(" ", _CAMEL.sub(" ", line))


def class_names(source: str) -> list[str]:
    """Classes at the top of a module. Private ones are left out: no other module sees them."""
    names = (node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    return [name for name in names if not name.startswith("_")]


def used_twice(names: dict[str, list[str]]) -> list[str]:
    """Class names, by module, that more than one module defines."""
    modules: dict[str, list[str]] = {}
    for module, classes in names.items():
        for name in classes:
            modules.setdefault(name, []).append(module)
    return [f"{name}: {', '.join(where)}" for name, where in sorted(modules.items()) if len(where) > 1]


def too_full(files: list[str], reasons: dict[str, str]) -> list[str]:
    """Folders of more than `FOLDER_FILES_MAX` files without a reason, and reasons that no folder needs any more.

    `__init__.py` does not count: it says what the folder is for."""
    counts = Counter(path.rpartition("/")[0] for path in files if not path.endswith("/__init__.py"))
    full = {folder for folder, count in counts.items() if count > FOLDER_FILES_MAX}
    return [
        *(f"{folder}: {counts[folder]} files, at most {FOLDER_FILES_MAX}" for folder in sorted(full - set(reasons))),
        *(f"{folder}: needs no reason any more" for folder in sorted(set(reasons) - full)),
    ]


def wide_lines(page: str) -> list[str]:
    """Lines of Markdown that an editor has to wrap. Rows of tables are left out: Markdown cannot wrap them."""
    return [
        f"line {number}: {len(line)} columns, at most {MARKDOWN_COLUMNS_MAX}"
        for number, line in enumerate(page.splitlines(), 1)
        if len(line) > MARKDOWN_COLUMNS_MAX and not line.startswith("|")
    ]


def stored_data(name: str, size: int, head: bytes) -> list[str]:
    """What a program has stored, not what a person wrote: too large, a database, or what lies in a data folder."""
    found = []
    if size > COMMITTED_BYTES_MAX and name not in LARGE_FILES:
        found.append(f"{name}: {size} bytes, at most {COMMITTED_BYTES_MAX}")
    if head.startswith(b"SQLite format 3\0"):
        found.append(f"{name}: a database")
    if re.search(DATA_ENDINGS, name):
        found.append(f"{name}: the name of a log, socket, lock or database")
    return found
