"""Every rule of docs/spec is defined once, named by the code that lives it, and proven by a test."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from tests.rules import ROOT, named_in, proven_in, rules_in, rules_of_spec

SOURCES = sorted((ROOT / "src" / "holdfast").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def ids(found: dict[Path, set[str]]) -> set[str]:
    return {rule for rules in found.values() for rule in rules}


RULES = rules_of_spec()


@cache  # reading all of it takes seconds: only where it is asked for, and once
def named() -> dict[Path, set[str]]:
    return {path: named_in(path.read_text("utf-8")) for path in SOURCES}


@cache
def proven() -> dict[Path, set[str]]:
    return {path: proven_in(path.read_text("utf-8")) for path in TESTS}


# ------------------------------------------------------------------------------------------------ the project


def test_the_pages_define_rules_each_of_them_once() -> None:
    assert RULES
    assert [rule for rule, times in Counter(RULES).items() if times > 1] == []


def test_every_rule_is_named_by_the_code_that_lives_it() -> None:
    assert sorted(set(RULES) - ids(named())) == []


def test_every_rule_is_proven_by_a_test() -> None:
    assert sorted(set(RULES) - ids(proven())) == []


def test_code_and_tests_name_only_rules_that_a_page_defines() -> None:
    strangers = {
        f"{path.relative_to(ROOT)} names {rule}"
        for path, rules in (named() | proven()).items()
        for rule in rules - set(RULES)
    }
    assert sorted(strangers) == []


def test_the_index_names_every_page() -> None:
    pages = {page.name for page in (ROOT / "docs" / "spec").glob("*.md")} - {"README.md"}
    index = (ROOT / "docs" / "spec" / "README.md").read_text("utf-8")
    assert {page for page in pages if f"[{page}]({page})" not in index} == set()


# ------------------------------------------------------------------------------------------------ the reading


def test_a_page_defines_what_stands_in_the_first_cell_of_a_row() -> None:
    page = (
        "| id | rule |\n|---|---|\n| CAN-001 | as CAN-009 says |\n|SP-ACK-001|x|\n| SP-CRASH-002 | x |\nTIER-001 | no"
    )
    assert rules_in(page) == ["CAN-001", "SP-ACK-001", "SP-CRASH-002"]


def test_a_rule_defined_twice_is_read_twice() -> None:
    assert rules_in("| DA-001 | x |\n| DA-001 | y |") == ["DA-001", "DA-001"]


@pytest.mark.parametrize(
    "source",
    [
        '"""CAN-001: what it is for."""',
        'def f():\n    """Lives CAN-001."""',
        'raise Corrupt("CAN-001", "says")',
        'x = f"{y} by CAN-001"',
    ],
)
def test_a_rule_in_a_string_is_named(source: str) -> None:
    assert named_in(source) == {"CAN-001"}


@pytest.mark.parametrize(
    "source",
    [
        "x = 1  # CAN-001",
        "CAN_001 = 1",
        '"""CAN-01, can-001, XCAN-001X, CANON-001, CAN-0011"""',
        '"""SHA-256 and EIP-4844, RFC 8949"""',
        'x = b"CAN-001"',
    ],
)
def test_a_comment_or_something_alike_names_no_rule(source: str) -> None:
    assert named_in(source) == set()


@pytest.mark.parametrize(
    "source",
    [
        '@pytest.mark.rule("ENG-002")\ndef test_x(): ...',
        '@pytest.mark.rule("ENG-002")\nasync def test_x(): ...',
        '@pytest.mark.rule("ENG-002")\nclass TestX:\n    def test_y(self): ...',
        'class TestX:\n    @pytest.mark.rule("ENG-002")\n    def test_y(self): ...',
        'pytestmark = pytest.mark.rule("ENG-002")',
        'pytestmark = [pytest.mark.full, pytest.mark.rule("ENG-002")]',
        '@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.rule("ENG-002"))])\ndef test_x(x): ...',
    ],
)
def test_a_mark_on_a_test_proves_a_rule(source: str) -> None:
    assert proven_in(source) == {"ENG-002"}


def test_one_mark_may_carry_several_rules() -> None:
    assert proven_in('@pytest.mark.rule("ENG-002", "ENG-003")\ndef test_x(): ...') == {"ENG-002", "ENG-003"}


@pytest.mark.parametrize(
    "source",
    [
        '# @pytest.mark.rule("ENG-002")\ndef test_x(): ...',
        'def test_x():\n    """ENG-002"""',
        '@pytest.mark.rule("ENG-002")\ndef helper(): ...',
        '@pytest.mark.other("ENG-002")\ndef test_x(): ...',
        'x = """@pytest.mark.rule("ENG-002")\ndef test_x(): ..."""',
    ],
)
def test_what_is_not_a_mark_on_a_test_proves_nothing(source: str) -> None:
    assert proven_in(source) == set()


# ------------------------------------------------------------------------------------------------ the run


def run(folder: Path, test: str, *args: str, full: bool = False) -> tuple[int, str]:
    """Pytest's verdict on a small project with this conftest, one page of rules and one test file."""
    (folder / "tests").mkdir()
    (folder / "docs" / "spec").mkdir(parents=True)
    (folder / "docs" / "spec" / "page.md").write_text("| AAA-001 | one |\n| AAA-002 | two |\n", "utf-8")
    for name in ("conftest.py", "counts.py", "rules.py"):
        shutil.copy(ROOT / "tests" / name, folder / "tests" / name)
    (folder / "tests" / "test_it.py").write_text(f"import pytest\n{test}\n", "utf-8")
    markers = "markers =\n    rule\n    full\n"
    (folder / "pytest.ini").write_text(f"[pytest]\ntestpaths = tests\npythonpath = .\n{markers}", "utf-8")
    plugins = ("-p", "no:cacheprovider", *(("-p", "xdist.plugin") if "-n" in args else ()))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *args],
        cwd=folder,
        env={
            "HOLDFAST_FULL": "1" if full else "",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # they take longer to load than all of it takes to run
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


BOTH = '@pytest.mark.rule("AAA-001", "AAA-002")\ndef test_both(): pass\n'
ONE = '@pytest.mark.rule("AAA-001")\ndef test_one(): pass\n'
TWO_FAILS = '@pytest.mark.rule("AAA-002")\ndef test_two(): assert False\n'
TWO_SKIPPED = '@pytest.mark.rule("AAA-002")\ndef test_two(): pytest.skip("not here")\n'
TWO_FULL = '@pytest.mark.full\n@pytest.mark.rule("AAA-002")\ndef test_two(): pass\n'


@pytest.mark.parametrize("args", [(), ("-n", "2")], ids=["alone", "workers"])
def test_a_whole_run_passes_when_passed_tests_prove_every_rule(tmp_path: Path, args: tuple[str, ...]) -> None:
    code, says = run(tmp_path, BOTH, *args)
    assert code == 0, says
    assert "without proof" not in says


@pytest.mark.parametrize(
    ("test", "args"),
    [(ONE, ()), (ONE + TWO_FAILS, ()), (ONE + TWO_FAILS, ("-n", "2")), (ONE + TWO_SKIPPED, ()), (ONE + TWO_FULL, ())],
    ids=["unmarked", "failed", "failed-workers", "skipped", "left-out"],
)
def test_a_whole_run_fails_and_names_the_rule_that_no_passed_test_proves(
    tmp_path: Path, test: str, args: tuple[str, ...]
) -> None:
    code, says = run(tmp_path, test, *args)
    assert code == 1, says
    assert "AAA-002: no test that passed is marked with it" in says
    assert "AAA-001: no test" not in says


@pytest.mark.parametrize("args", [("-k", "one"), ("tests/test_it.py",), ("-m", "rule"), ("--collect-only",)])
def test_a_run_of_some_tests_asks_for_no_proof_of_the_others(tmp_path: Path, args: tuple[str, ...]) -> None:
    code, says = run(tmp_path, ONE, *args)
    assert code == 0, says
    assert "without proof" not in says


@pytest.mark.parametrize("full", [False, True])
def test_full_tests_are_left_out_unless_full_counts_are_asked_for(tmp_path: Path, full: bool) -> None:
    code, says = run(tmp_path, BOTH + "@pytest.mark.full\ndef test_long(): pass\n", full=full)
    assert code == 0, says
    assert ("2 passed" if full else "1 passed, 1 deselected") in says
