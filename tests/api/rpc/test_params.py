"""Records as JSON has them: whatever the types of their fields promise, every value is converted by what it is."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec
import pytest

from holdfast.api.rpc.params import to_json
from holdfast.core.base.values import AccountId, Digest, Height, Kind


class _Colour(StrEnum):
    RED = "red"


class _Inner(msgspec.Struct):
    raw: bytes
    many: list[Digest]


class _Record(msgspec.Struct):
    name: AccountId
    height: Height
    payee: AccountId | None
    digest: Digest | None
    either: int | bytes
    colour: _Colour
    kind: Kind | None
    inner: _Inner
    inners: tuple[_Inner, ...]
    by_name: dict[str, bytes]
    anything: Any
    is_open: bool = True
    share: float = 0.5


INNER = _Inner(b"\x01", [Digest(b"\xab"), Digest(b"")])
SHOWN = {"raw": "01", "many": ["ab", ""]}


@pytest.mark.rule("RPC-001")
@pytest.mark.parametrize(("payee", "digest", "either"), [(None, None, 7), (AccountId("oak"), Digest(b"\xff"), b"\x07")])
def test_a_record_is_shown_by_its_values(payee: AccountId | None, digest: Digest | None, either: int | bytes) -> None:
    record = _Record(
        name=AccountId("alice"),
        height=Height(3),
        payee=payee,
        digest=digest,
        either=either,
        colour=_Colour.RED,
        kind=Kind.AI,
        inner=INNER,
        inners=(INNER,),
        by_name={"a": b"\x02"},
        anything=[b"\x03", None],
    )
    assert to_json(record) == {
        "name": "alice",
        "height": 3,
        "payee": payee,
        "digest": None if digest is None else "ff",
        "either": 7 if either == 7 else "07",
        "colour": "red",
        "kind": "AI",
        "inner": SHOWN,
        "inners": [SHOWN],
        "by_name": {"a": "02"},
        "anything": ["03", None],
        "is_open": True,
        "share": 0.5,
    }
