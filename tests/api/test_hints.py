"""Every refusal that a user can meet says what to do, by itself or by its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from tests.rules import ROOT

from holdfast.api.error_codes import ERROR_CODES, HINTS, RULE_HINTS, error_reply, hint_for
from holdfast.core.base.errors import Corrupt, Refused, Unavailable

SOURCE = ROOT / "src" / "holdfast"
KINDS = {"Refused": "Refused", "Unavailable": "Unavailable", "AccessDenied": "Unavailable", "Corrupt": "Corrupt"}
OTHER_WORDS = {"gateway": "speaks the API of load-s3-agent, whose messages are fixed and have no hints"}
"""Folders that answer in another program's words."""


class Refusal(NamedTuple):
    """One place that refuses: whether it has a hint, and its name where that is written there."""

    where: str
    name: str | None
    has_hint: bool


def refusals(source: str, where: str) -> Iterator[Refusal]:
    """Every construction of a refusal or a fault, positional and by keyword."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS:
            fields = dict(zip(("rule", "message", "hint", "name"), node.args, strict=False))
            fields |= {each.arg: each.value for each in node.keywords if each.arg is not None}
            hint, name = fields.get("hint"), fields.get("name")
            has_hint = hint is not None and not (isinstance(hint, ast.Constant) and not hint.value)
            written = KINDS[node.func.id] if name is None else name.value if isinstance(name, ast.Constant) else None
            is_spread = any(isinstance(each, ast.Starred) for each in node.args)
            yield Refusal(f"{where}:{node.lineno}", str(written) if written else None, has_hint or is_spread)


def all_refusals() -> Iterator[Refusal]:
    for path in sorted(SOURCE.rglob("*.py")):
        where = path.relative_to(SOURCE).as_posix()
        if where.split("/")[0] not in OTHER_WORDS:
            yield from refusals(path.read_text("utf-8"), where)


@pytest.mark.rule("RPC-001")
def test_every_refusal_has_a_hint_or_its_name_has_one() -> None:
    found = list(all_refusals())
    assert len(found) > 500
    without = [each.where for each in found if not each.has_hint and each.name not in HINTS]
    assert without == []


def test_a_refusal_without_a_hint_is_seen() -> None:
    plain, empty = 'Refused("A", "b")', 'Refused("A", "b", "", "Refused")'
    source = "\n".join([plain, empty, 'Refused("A", "b", name="NotFound")', 'Corrupt("A", "b", "c")'])
    assert [(each.name, each.has_hint) for each in refusals(source, "x.py")] == [
        ("Refused", False),
        ("Refused", False),
        ("NotFound", False),
        ("Corrupt", True),
    ]


@pytest.mark.rule("RPC-001")
def test_the_table_names_errors_that_exist_and_says_what_to_do() -> None:
    assert HINTS.keys() | {name for name, _ in RULE_HINTS} <= ERROR_CODES.keys()
    assert "Refused" not in HINTS, "a plain refusal says itself what to do"
    for hint in (*HINTS.values(), *RULE_HINTS.values()):
        assert hint[0].islower() or hint[0] == "`", hint
        assert not hint.endswith("."), hint


@pytest.mark.rule("RPC-001")
def test_what_is_sent_has_the_hint_of_its_name_unless_it_has_its_own() -> None:
    assert error_reply(Refused("JOB-007", "no job", name="NotFound")).hint == hint_for("NotFound", "JOB-007")
    assert "job list" in hint_for("NotFound", "JOB-007")
    assert hint_for("NotFound", "X-000") == HINTS["NotFound"]
    assert error_reply(Refused("JOB-007", "no job", "mine", "NotFound")).hint == "mine"
    assert error_reply(Unavailable("ENG-001", "gone")).hint == HINTS["Unavailable"]
    assert error_reply(Corrupt("ENG-001", "torn")).hint == HINTS["Corrupt"]
