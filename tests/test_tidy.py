"""Taste is a unit test: what the project looks like, checked by functions that are themselves seen to fail."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import tidy
from tests.rules import ROOT

SRC = ROOT / "src"
MODULES = sorted((SRC / "holdfast").rglob("*.py"))
CORE = [path for path in MODULES if path.is_relative_to(SRC / "holdfast" / "core")]
GENERATED = SRC / "holdfast" / "wire" / "gen"
WRITTEN = [path for path in MODULES if not path.is_relative_to(GENERATED)]
""".py files that people write; the stubs below wire/gen are generated."""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def faults(paths: list[Path], check: Callable[[str], list[str]]) -> list[str]:
    return [f"{name_of(path)}: {fault}" for path in paths for fault in check(path.read_text("utf-8"))]


def committed() -> list[Path]:
    """Every file of the project that is, or could be, committed."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True)
    return [path for name in done.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


def head_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(8_192)


def texts() -> list[Path]:
    return [path for path in committed() if b"\0" not in head_of(path)]


def text_faults(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name_of(path)}: {fault}"
        for path in texts()
        for fault in tidy.lines_with(pattern, path.read_text("utf-8", errors="replace"))
    ]


def prose() -> list[Path]:
    """What a reader meets: code, schemas, queries, documentation. CHANGELOG.md keeps the words of its day."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
    sources = [path for ending in ("proto", "sql") for path in (SRC / "holdfast").rglob(f"*.{ending}")]
    return [*WRITTEN, *sorted(sources), *sorted((ROOT / "docs").rglob("*.md")), *pages]


def markdown() -> list[Path]:
    return [path for path in texts() if path.suffix == ".md"]


# ------------------------------------------------------------------------------------------------ the project


def test_core_reads_no_clock_no_chance_no_world_and_has_no_floats() -> None:
    assert faults(CORE, tidy.impure) == []


def test_files_and_functions_are_short() -> None:
    assert faults(MODULES, tidy.too_long) == []


def test_every_module_opens_with_what_it_is_for() -> None:
    assert faults(MODULES, tidy.without_purpose) == []


def test_no_module_has_a_name_that_could_hold_anything() -> None:
    assert [fault for path in MODULES for fault in tidy.vague(path.relative_to(SRC).as_posix())] == []


def test_every_module_belongs_to_a_layer() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"][0]
    layers = frozenset(re.findall(r"\w+", " ".join([*contract["layers"], *contract["exhaustive_ignores"]])))
    assert {"cli", "core", "engine"} <= layers
    modules = (path.relative_to(SRC).with_suffix("").as_posix().replace("/", ".") for path in MODULES)
    assert [
        fault for module in modules for fault in tidy.outside_layers(module.removesuffix(".__init__"), layers)
    ] == []


def test_no_class_name_is_used_twice() -> None:
    names = {name_of(path): tidy.class_names(path.read_text("utf-8")) for path in WRITTEN}
    assert tidy.used_twice(names) == []


def test_no_retired_word_is_used_in_code_messages_or_docs() -> None:
    assert faults(prose(), tidy.retired_words) == []


def test_no_file_is_named_by_a_retired_word() -> None:
    assert [fault for path in prose() for fault in tidy.retired_words(path.relative_to(ROOT).as_posix())] == []


def test_no_folder_holds_more_files_than_a_reader_can_survey() -> None:
    files = [name_of(path) for folder in ("src", "tests", "bench", "tools") for path in (ROOT / folder).rglob("*.py")]
    assert tidy.too_full(files, tidy.LARGE_FOLDERS) == []


def test_lines_of_markdown_are_not_too_wide() -> None:
    assert faults(markdown(), tidy.wide_lines) == []


def test_no_data_is_committed() -> None:
    """A folder with databases was, once, by mistake."""
    found = [tidy.stored_data(name_of(path), path.stat().st_size, head_of(path)) for path in committed()]
    assert [fault for faults_of_file in found for fault in faults_of_file] == []


def test_nothing_is_left_for_later_in_a_comment() -> None:
    assert text_faults(tidy.UNFINISHED) == []


def test_no_text_names_a_package_registry() -> None:
    assert text_faults(tidy.REGISTRY) == []


def test_no_text_names_a_path_of_one_machine() -> None:
    assert text_faults(tidy.MACHINE_PATH) == []


def test_the_readme_names_the_two_commands() -> None:
    assert tidy.commands_missing((ROOT / "README.md").read_text("utf-8")) == []


def test_the_import_contracts_hold() -> None:
    code, says = contracts(ROOT)
    assert code == 0, says


# ------------------------------------------------------------------------------------------------ the checks can fail


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import time", "line 1: imports time"),
        ("import os.path", "line 1: imports os.path"),
        ("from datetime import datetime", "line 1: imports datetime"),
        ("from random import random as r", "line 1: imports random"),
        ("def f():\n    import asyncio", "line 2: imports asyncio"),
        ("x = open('y')", "line 1: calls open()"),
        ("print(1)", "line 1: calls print()"),
        ("x = hash('y')", "line 1: calls hash()"),
        ("x = 0.5", "line 1: a float"),
        ("x = 1e9", "line 1: a float"),
        ("x = 1 / 2", "line 1: a division that gives a float"),
        ("x /= 2", "line 1: a division that gives a float"),
    ],
)
def test_what_is_impure_is_seen(source: str, says: str) -> None:
    assert tidy.impure(source) == [says]


@pytest.mark.parametrize(
    "source",
    [
        "x = 1 // 2",
        "'time is an argument'",
        "from holdfast.core.time import x",
        "from . import time",
        "x = spool.open('y')",
        "x = 0.5  # tidy: printed, never hashed",
    ],
)
def test_what_only_looks_impure_or_is_excused_passes(source: str) -> None:
    assert tidy.impure(source) == []


@pytest.mark.parametrize(("lines", "is_bad"), [(399, False), (400, False), (401, True)])
def test_a_long_file_is_seen(lines: int, is_bad: bool) -> None:
    assert bool(tidy.too_long("x = 1\n" * lines)) is is_bad


@pytest.mark.parametrize("opening", ["def f():", "async def f():"])
@pytest.mark.parametrize(("lines", "is_bad"), [(59, False), (60, False), (61, True)])
def test_a_long_function_is_seen(opening: str, lines: int, is_bad: bool) -> None:
    assert bool(tidy.too_long(f"{opening}\n" + "    x = 1\n" * (lines - 1))) is is_bad


@pytest.mark.parametrize(
    ("source", "is_bad"),
    [
        ("x = 1", True),
        ("# a comment\nx = 1", True),
        ('"""No end to this first sentence"""', True),
        ('"""Stuff."""', True),
        ('"""The spool module."""', True),
        ('"""What the queue takes in."""', False),
        ('"""Two lines that are\none sentence.\n\nMore"""', False),
        ('"""What a domain is, as a list:\n\n- one"""', False),
    ],
)
def test_a_module_that_does_not_say_what_it_is_for_is_seen(source: str, is_bad: bool) -> None:
    assert bool(tidy.without_purpose(source)) is is_bad


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("holdfast/utils.py", ["utils"]),
        ("holdfast/core/helpers/__init__.py", ["helpers"]),
        ("holdfast/engine/lease_manager.py", ["lease_manager"]),
        ("holdfast/core/commons.py", []),
    ],
)
def test_a_vague_name_is_seen(path: str, found: list[str]) -> None:
    assert tidy.vague(path) == found


@pytest.mark.parametrize(
    ("module", "is_bad"),
    [
        ("holdfast", False),
        ("holdfast.core.base.canonical", False),
        ("holdfast.attic", True),
        ("holdfast.attic.core", True),
    ],
)
def test_a_module_in_no_layer_is_seen(module: str, is_bad: bool) -> None:
    assert bool(tidy.outside_layers(module, frozenset({"core"}))) is is_bad


@pytest.mark.parametrize(
    ("name", "size", "head", "is_bad"),
    [
        ("docs/plan.md", 300_000, b"# Plan", False),
        ("docs/plan.md", 300_001, b"# Plan", True),
        ("tests/golden/v1", 4_096, b"SQLite format 3\0", True),
        ("data/owner.lock", 0, b"", True),
        ("node/journal.sqlite-wal", 0, b"", True),
        ("node.log", 10, b"started", True),
        ("docs/log.md", 10, b"a log", False),
        ("src/holdfast/spool/files/segment_log.py", 10, b"", False),
    ],
)
def test_data_that_should_not_be_committed_is_seen(name: str, size: int, head: bytes, is_bad: bool) -> None:
    assert bool(tidy.stored_data(name, size, head)) is is_bad


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (tidy.UNFINISHED, "x = 1  # TO" + "DO: more"),
        (tidy.UNFINISHED, "FIX" + "ME"),
        (tidy.REGISTRY, "pip install --index" + "-url=x"),
        (tidy.REGISTRY, "see https://files.python" + "hosted.org/x"),
        (tidy.REGISTRY, "https://host/artifact" + "ory/x"),
        (tidy.MACHINE_PATH, "cd /wo" + "rk/main"),
        (tidy.MACHINE_PATH, "/ro" + "ot/x"),
    ],
)
def test_a_line_that_should_not_be_there_is_seen(pattern: re.Pattern[str], line: str) -> None:
    assert tidy.lines_with(pattern, f"first\n{line}\nlast") == [f"line 2: {line}"]


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (tidy.UNFINISHED, "a list of to" + "dos"),
        (tidy.REGISTRY, "a registry of providers, a proxy"),
        (tidy.MACHINE_PATH, "src/wo" + "rk/x and https://host/wo" + "rking"),
    ],
)
def test_a_harmless_line_passes(pattern: re.Pattern[str], line: str) -> None:
    assert tidy.lines_with(pattern, line) == []


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("class JobSexton:", "Sexton"),
        ("self.stirred_at = 0", "stirred"),
        ("a record is buried", "buried"),
        ("the letters of one channel", "letters"),
        ("the letter is resolved", "the letter"),
        ("unread_letters", "letters"),
        ("from holdfast.doors import http", "doors"),
        ("# each duty looks at the state", "duty"),
        ("memory lets go of it", "lets go of"),
        ("a block is taken back", "taken back"),
        ("the job is put back", "put back"),
        ("whoever hands a result in", "hands a result in"),
        ("sorted lots are merged", "lots"),
        ("beyond the mark", "the mark"),
        ("the node's mark", "node s mark"),
        ("until the next hand holds it", "next hand"),
        ("nobody fits", "nobody"),
        ("so many of so many", "so many"),
    ],
)
def test_a_retired_word_is_seen(line: str, word: str) -> None:
    [fault] = tidy.retired_words(f"first\n{line}\nlast")
    assert fault.startswith(f"line 2: {word!r} is retired, write ")


@pytest.mark.parametrize(
    "line",
    [
        "a dead letter, dead_letters, DeadLetter, dead-letter list",
        "a lot of jobs",
        "the watermark moves; @pytest.mark.rule",
        "by hand, handle, in hand, the hand-off",
        "beginning with a letter or a digit",
        "indoors, a doorway, restoring, a household, allot, slots",
        "`a // b` is floor division",
        "roll back, go back, back to the pool",
    ],
)
def test_the_ordinary_use_of_a_word_passes(line: str) -> None:
    assert tidy.retired_words(line) == []


def test_a_class_name_used_twice_is_seen() -> None:
    source = "class Page:\n    class Inner: ...\nclass _Private: ...\n"
    assert tidy.class_names(source) == ["Page"]
    assert tidy.used_twice({"a.py": ["Page", "Job"], "b.py": ["Page"]}) == ["Page: a.py, b.py"]
    assert tidy.used_twice({"a.py": ["Page"], "b.py": ["Job"]}) == []


@pytest.mark.parametrize(("count", "is_bad"), [(14, False), (15, False), (16, True)])
def test_a_folder_with_too_many_files_is_seen(count: int, is_bad: bool) -> None:
    files = ["src/x/__init__.py", *(f"src/x/file{number}.py" for number in range(count))]
    assert bool(tidy.too_full(files, {})) is is_bad
    assert tidy.too_full(files, {"src/x": "a reason"}) == ([] if is_bad else ["src/x: needs no reason any more"])


@pytest.mark.parametrize(
    ("line", "is_bad"),
    [("x" * 139, False), ("x" * 140, False), ("x" * 141, True), ("| " + "x" * 200 + " |", False)],
    ids=["below", "at", "above", "row"],
)
def test_a_wide_line_of_markdown_is_seen(line: str, is_bad: bool) -> None:
    assert bool(tidy.wide_lines(f"# title\n{line}\n")) is is_bad


def test_a_readme_without_a_command_is_seen() -> None:
    assert tidy.commands_missing("run `make test`") == ["make demo"]


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("core/base/values.py", "import time", "Core is pure"),
        ("core/base/values.py", "import holdfast.core.state_machine", "Inside core a later domain may look back"),
        ("core/base/values.py", "import holdfast.config", "Each layer knows only the layers below it"),
        ("config.py", "import apsw", "Database libraries are imported only where they are wrapped"),
        ("attic.py", '"""A module in no layer."""', "Each layer knows only the layers below it"),
    ],
)
def test_an_import_that_breaks_a_contract_is_seen(tmp_path: Path, module: str, line: str, contract: str) -> None:
    shutil.copytree(SRC, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "src" / "holdfast" / module).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    code, says = contracts(tmp_path)
    assert code == 1, says
    assert re.search(rf"^{contract}.* BROKEN", says, re.MULTILINE), says


def contracts(root: Path) -> tuple[int, str]:
    """The verdict of import-linter on the sources below `root`, with the contracts of its pyproject.toml."""
    program = Path(sys.executable).parent / "lint-imports"
    environ = os.environ | {"PYTHONPATH": str(root / "src"), "COLUMNS": "200"}
    done = subprocess.run(
        [program, "--no-cache"], cwd=root, env=environ, capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, done.stdout + done.stderr
