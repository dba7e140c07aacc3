"""What lists look like in a pipe and on a terminal."""

from __future__ import annotations

import pytest

from holdfast.cli.terminal import tables
from holdfast.cli.terminal.progress import format_bar

ID = "ab" * 32
HEADS, ROWS = ("ID", "STATE"), [(ID, "FAILED"), (None, "")]


@pytest.mark.rule("RPC-001")
@pytest.mark.parametrize(("wide", "shown"), [(False, ID[:12]), (True, ID)])
def test_ids_are_abbreviated_unless_they_are_wanted_whole(
    wide: bool, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tables.print_table(HEADS, ROWS, wide=wide)
    heads, row, empty = capsys.readouterr().out.splitlines()
    assert (heads.split(), row.split(), empty.split()) == (["ID", "STATE"], [shown, "FAILED"], ["-", "-"])


@pytest.mark.rule("RPC-001")
def test_a_table_has_colours_on_a_terminal_alone_and_not_with_no_color(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert not tables.has_colours()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert tables.has_colours()
    tables.print_table(HEADS, ROWS, wide=False)
    assert "\x1b[31mFAILED" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    tables.print_table(HEADS, ROWS, wide=False)
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.rule("RPC-001")
@pytest.mark.parametrize(
    ("done", "total", "percent"), [(0, 10, "  0 %"), (5, 10, " 50 %"), (12, 10, "100 %"), (0, 0, "100 %")]
)
def test_a_bar_shows_how_much_is_done_and_never_more_than_all(done: int, total: int, percent: str) -> None:
    bar = format_bar(done, total)
    assert (bar.endswith(percent), len(bar)) == (True, len(format_bar(1, 10)))
