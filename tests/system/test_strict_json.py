"""An object that names a key twice is refused, wherever it stands and however the key is spelled (SEC-001)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.error_codes import ErrorReply
from holdfast.api.rpc import jsonrpc
from holdfast.cli.compute.strict_json import read_object
from holdfast.cli.terminal.input_files import UnreadableInput, read_json
from holdfast.config import load
from holdfast.gateway.agent_tags import CustomTag, parse_tags
from holdfast.system.strict_json import DuplicateKey, decode_json

pytestmark = pytest.mark.rule("SEC-001")
texts = st.text(alphabet='ab:,{}"\\é', max_size=4)
values = st.recursive(
    st.none() | st.integers(0, 9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


@given(values, st.booleans())
def test_what_names_each_key_once_is_read_as_it_is(value: Any, is_ascii: bool) -> None:
    assert decode_json(json.dumps(value, ensure_ascii=is_ascii).encode()) == value


@given(values, texts, values, st.booleans())
def test_a_key_that_comes_twice_is_always_found(first: Any, key: str, second: Any, is_nested: bool) -> None:
    name = json.dumps(key)
    raw = f"{{{name}: {json.dumps(first)}, {name}: {json.dumps(second)}}}"
    with pytest.raises(DuplicateKey):
        decode_json((f'[{{"x": {raw}}}]' if is_nested else raw).encode())


TWICE = [b'{"a":1,"a":1}', rb'{"a":1,"\u0061":2}', b'{"x":[{"a":{}, "b":":", "a" : []}]}']


@pytest.mark.parametrize("raw", TWICE)
def test_every_reader_of_a_clients_json_refuses_it_by_name(raw: bytes, tmp_path: Path) -> None:
    reply = jsonrpc.decode_json(raw, 64)
    assert isinstance(reply, ErrorReply)
    assert (reply.name, reply.rule, reply.message) == ("InvalidRequest", "SEC-001", "a duplicate key: 'a'")
    (tmp_path / "file.json").write_bytes(raw)
    for kind in (Any, dict[str, Any]):
        with pytest.raises(UnreadableInput, match="a duplicate key: 'a'"):
            read_json(tmp_path / "file.json", kind)
    _, faults = read_object(raw)
    assert [fault.message for found in faults.values() for fault in found] == ["a duplicate key"]


def test_a_typed_value_is_read_and_its_duplicates_are_refused() -> None:
    assert parse_tags(b'[{"key":"a","value":"b"}]') == [CustomTag("a", "b")]
    with pytest.raises(msgspec.DecodeError):
        decode_json(b'[{"key":"a","value":"b","key":"c"}]', list[CustomTag])


def test_a_settings_file_that_names_a_setting_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("[policy.lease]\nattempts_max = 2\nattempts_max = 3\n")
    faults = load(tmp_path / "holdfast.toml", {}, {})
    assert isinstance(faults, list)
    assert len(faults) == 1
