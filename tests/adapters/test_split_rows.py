"""Which rows a write of the tables inserts, which it replaces, and which it deletes."""

from __future__ import annotations

import pytest

from holdfast.adapters.sql.table_schema import split_rows
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import BatchNo, EventNo
from holdfast.ports import row_deleted

AFTER = JournalHead(number=BatchNo(3), last=EventNo(10))
pytestmark = pytest.mark.rule("ENG-004")


def test_a_row_of_an_event_after_the_checkpoint_is_new() -> None:
    rows = [(9, b"below"), (10, b"at"), (11, b"above")]
    assert split_rows("spec", rows, AFTER) == ([(11, b"above")], [(9, b"below"), (10, b"at")], [])


def test_without_a_checkpoint_every_row_may_exist() -> None:
    assert split_rows("spec", [(11, b"raw")], None) == ([], [(11, b"raw")], [])


def test_a_row_with_another_key_than_its_event_may_exist() -> None:
    row = (11, 4, b"raw")
    assert split_rows("leaf", [row], AFTER) == ([], [row], [])


def test_of_two_rows_with_one_key_the_later_counts() -> None:
    assert split_rows("spec", [(11, b"first"), (11, b"second")], AFTER) == ([(11, b"second")], [], [])
    assert split_rows("spec", [(11, b"first"), row_deleted(11)], AFTER) == ([], [], [row_deleted(11)])
    assert split_rows("spec", [row_deleted(11), (11, b"second")], AFTER) == ([(11, b"second")], [], [])


def test_no_rows_are_split_into_none() -> None:
    assert split_rows("spec", [], AFTER) == ([], [], [])
