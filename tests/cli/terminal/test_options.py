"""Which node a command speaks to: what is typed counts before the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.terminal.options import NodeAddress, on_node


@pytest.mark.rule("RPC-001", "SEC-001")
@pytest.mark.parametrize(
    ("data", "url", "known", "expected"),
    [
        (None, None, "http://env:1", NodeAddress(None, "http://env:1")),
        (None, "http://typed:1", "http://env:1", NodeAddress(None, "http://typed:1")),
        (Path("here"), None, "http://env:1", NodeAddress(Path("here"), None)),
        (None, None, "", NodeAddress()),
    ],
)
def test_the_node_of_the_environment_counts_where_none_is_typed(
    data: Path | None, url: str | None, known: str, expected: NodeAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_URL", known)
    seen: list[tuple[NodeAddress, str]] = []

    @on_node
    def verb(address: NodeAddress, word: str = "") -> None:
        seen.append((address, word))

    verb(data=data, url=url, token_file=None, ca=None, word="x")
    assert seen == [(expected, "x")]
