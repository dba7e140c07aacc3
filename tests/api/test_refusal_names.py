"""One refusal, one name (SEC-001): a table of all refusals in the source, read from its syntax trees."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import holdfast
from holdfast.api.error_codes import ERROR_CODES

pytestmark = pytest.mark.rule("SEC-001")
SOURCE: Final = Path(holdfast.__file__).parent
ELSEWHERE: Final = ("spool", "gateway", "shipping")
"""They speak protocols of other programs, whose names of sizes are fixed."""
TOO_LARGE: Final = re.compile(r"(bytes|lines|acts at once|requests), at most \{\}|more than \{\} (bytes|values)")
INVALID: Final = re.compile(r"\w+: .*(must be|is not in \{?)")


class Told(NamedTuple):
    """One refusal as the source writes it; what is only known at run time is `{}`."""

    rule: str
    message: str
    name: str
    where: str


def text(node: ast.expr | None, default: str = "") -> str:
    match node:
        case None:
            return default
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(text(each, "{}") for each in values)
    return "{}"


def refusals() -> Iterator[Told]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id="Refused"), args=[rule, message, *rest], keywords=keywords):
                    named = rest[1] if len(rest) > 1 else next((k.value for k in keywords if k.arg == "name"), None)
                case ast.Call(func=ast.Name(id="ErrorReply"), args=[named, rule, message, *_]):
                    pass
                case _:
                    continue
            where = f"{path.relative_to(SOURCE)}:{node.lineno}"
            yield Told(text(rule), text(message), text(named, "Refused"), where)


TABLE: Final = list(refusals())


def test_the_table_has_the_refusals() -> None:
    assert len(TABLE) > 300
    assert {told.rule for told in TABLE} > {"SEC-001", "ESC-001", "JOB-005", "PRV-001"}


def test_the_same_words_of_the_same_rule_have_one_name() -> None:
    names: dict[tuple[str, str], str] = {}
    for told in TABLE:
        if told.message.replace("{}", "").strip(": "):
            assert names.setdefault((told.rule, told.message), told.name) == told.name, told


def test_every_name_is_in_the_table_of_errors() -> None:
    assert [told for told in TABLE if told.name not in (*ERROR_CODES, "{}")] == []


def test_what_is_too_large_and_what_is_malformed_is_named_so_everywhere() -> None:
    ours = [told for told in TABLE if not told.where.startswith(ELSEWHERE)]
    wrong_size = [told for told in ours if TOO_LARGE.search(told.message) and told.name != "TooLarge"]
    wrong_field = [told for told in ours if INVALID.match(told.message) and told.name != "InvalidParams"]
    assert (wrong_size, wrong_field) == ([], [])
