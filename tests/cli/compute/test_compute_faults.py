"""`holdfast compute` refuses: every fault in the input is named with its path, and nothing is printed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.compute.compute_inputs import GOOD, compute, faults, spelt, without_hint

from holdfast.cli.compute.strict_json import InvalidInput, read_object

# ------------------------------------------------------------------------------------------------ faulty fields


@pytest.mark.rule("CMP-001")
@pytest.mark.parametrize(("name", "field"), [(name, field) for name in GOOD for field in GOOD[name]])
def test_a_missing_field_is_named(name: str, field: str) -> None:
    rest = {key: value for key, value in GOOD[name].items() if key != field}
    assert without_hint(faults(name, json.dumps(rest))) == [f"{field}: missing"]


NARROW = {("nullifier", "type"), ("notice-root", "version"), ("notice-root", "round"), ("notice-root", "blob_index")}
"""Integers that have less than 64 bits."""
TEXTS = {("notice-root", "provider_id"), ("notice-root", "locator")}
INTEGER_FIELDS = [
    (name, field)
    for name in GOOD
    for field in GOOD[name]
    if type(GOOD[name][field]) is int and (name, field) not in NARROW
]
HEX_FIELDS = [
    (name, field)
    for name in GOOD
    for field, value in GOOD[name].items()
    if isinstance(value, str) and field not in ("tier", "kind") and (name, field) not in TEXTS
]


@pytest.mark.rule("CMP-001")
@pytest.mark.parametrize(("name", "field"), INTEGER_FIELDS)
def test_an_integer_is_one_of_sixty_four_bits_and_nothing_else(name: str, field: str) -> None:
    assert compute(name, spelt(name, field, str(2**64 - 1)))[0] == 0
    for spelling in ("-1", str(2**64), "9" * 5000, "-" + "9" * 5000):
        assert faults(name, spelt(name, field, spelling)) == [f"{field}: outside 0 to {2**64 - 1}"]
    for spelling, kind in (("true", "a boolean"), ("null", "null"), ('"1"', "text"), ("[]", "an array")):
        assert without_hint(faults(name, spelt(name, field, spelling))) == [f"{field}: {kind}, expected an integer"]


@pytest.mark.rule("CMP-001")
@pytest.mark.parametrize(("name", "field"), HEX_FIELDS)
def test_bytes_are_lower_case_hex_and_nothing_else(name: str, field: str) -> None:
    for spelling, says in (
        ('"0xab"', "begins with 0x"),
        ('"AB"', "upper-case hex"),
        ('"abc"', "an odd number of hex digits"),
        ('"zz"', "not hex"),
        ('" ab"', "not hex"),
        ('"ab\\n"', "not hex"),
        ('"٠٠"', "not hex"),
        ("12", "an integer, expected bytes as lower-case hex"),
        ("null", "null, expected bytes as lower-case hex"),
    ):
        assert without_hint(faults(name, spelt(name, field, spelling))) == [f"{field}: {says}"]


@pytest.mark.rule("CMP-001")
@pytest.mark.parametrize(
    ("name", "field", "spelling", "says"),
    [
        ("task-id", "caller", '""', "caller: 0 bytes, at least 1"),
        ("task-id", "caller", json.dumps("ab" * 65), "caller: 65 bytes, at most 64"),
        ("shuffle", "providers", "{}", "providers: an object, expected an array"),
        ("shuffle", "providers", '["aa", "AA"]', "providers[1]: upper-case hex"),
        ("shuffle", "providers", '["aa", null]', "providers[1]: null, expected bytes as lower-case hex"),
        ("priority", "tier", '"pro"', 'tier: unknown name "pro"'),
        ("priority", "tier", "1", "tier: an integer, expected a name"),
        ("backoff", "kind", '"ai"', 'kind: unknown name "ai"'),
        ("backoff", "kind", '""', 'kind: unknown name ""'),
        ("nullifier", "type", "0", "type: unknown number"),
        ("nullifier", "type", "4", "type: unknown number"),
        ("nullifier", "type", "true", "type: a boolean, expected an integer"),
        ("nullifier", "type", '"AI"', "type: text, expected an integer"),
        ("priority", "policy", "null", "policy: null, expected an object"),
        ("priority", "policy", '{"fee_ref": 0}', f"policy.fee_ref: outside 1 to {2**64 - 1}"),
        ("priority", "policy", '{"age_ref_ms": 0}', f"policy.age_ref_ms: outside 1 to {2**64 - 1}"),
        ("priority", "policy", '{"size_ref": 0}', f"policy.size_ref: outside 1 to {2**64 - 1}"),
        ("priority", "policy", '{"w_fee": -1}', f"policy.w_fee: outside 0 to {2**64 - 1}"),
        ("priority", "policy", '{"w_fee": true}', "policy.w_fee: a boolean, expected an integer"),
        ("priority", "policy", '{"w_feee": 1}', "policy.w_feee: unknown field"),
        ("task-id", "payload", f'[{{"a b": {2**64}}}]', f'payload[0]["a b"]: outside {-(2**64)} to {2**64 - 1}'),
        ("nullifier", "body", f"{-(2**64) - 1}", f"body: outside {-(2**64)} to {2**64 - 1}"),
    ],
)
def test_a_malformed_field_is_named_with_its_path(name: str, field: str, spelling: str, says: str) -> None:
    assert without_hint(faults(name, spelt(name, field, spelling))) == [says]


@pytest.mark.rule("CMP-001")
@pytest.mark.parametrize("number", ["1.0", "1e3", "1E+2", "-0.0", "1.5e400", "NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize(
    ("name", "field", "around", "path"),
    [
        ("seed", "chain_id", "%s", "chain_id"),
        ("task-id", "payload", '{"a": [0, {"b": %s}]}', "payload.a[1].b"),
        ("nullifier", "body", "%s", "body"),
        ("priority", "policy", '{"w_fee": %s}', "policy.w_fee"),
        ("seed", "unknown", "[%s]", "unknown[0]"),
    ],
)
def test_a_float_is_refused_wherever_it_stands(name: str, field: str, around: str, path: str, number: str) -> None:
    says = f"{path}: a float ({number}) is refused (scale it to an integer)"
    assert faults(name, spelt(name, field, around % number)) == [says]


@pytest.mark.rule("CMP-001")
@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"bytes": "00", "bytes": "00"}', "bytes"),
        ('{"bytes": "00", "byt\\u0065s": "01"}', "bytes"),
        ('{"bytes": "00", "x": [{"y": {"a": 1, "b": 2, "a": 3}}]}', "x[0].y.a"),
        ('{"bytes": "00", "x": {"": 1, "": 2}}', 'x[""]'),
    ],
)
def test_a_duplicate_key_is_refused_wherever_it_stands(text: str, path: str) -> None:
    assert without_hint(faults("result-digest", text)) == [f"{path}: a duplicate key"]


@pytest.mark.rule("CMP-001")
@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"bytes": "\\ud800"}', "bytes"),
        ('{"bytes": "00", "x": ["a", "\\udc00b"]}', "x[1]"),
        ('{"bytes": "00", "x": {"a\\ud800": 1}}', 'x["a\\ud800"]'),
        ('{"bytes": "00", "\\ud800": 1}', '["\\ud800"]'),
    ],
)
def test_a_lone_surrogate_is_refused_wherever_it_stands(text: str, path: str) -> None:
    assert faults("result-digest", text) == [f"{path}: a lone surrogate is not text"]


@pytest.mark.rule("CMP-001")
def test_all_faulty_fields_are_reported_at_once() -> None:
    text = '{"chain_id": true, "heigth": 2, "tx_hash": "0x", "caller": "", "payload": [1.5, {"a": 1, "a": 2}]}'
    assert {fault.partition(":")[0] for fault in faults("task-id", text)} == {
        *("chain_id", "height", "tx_hash", "caller"),
        *("payload[0]", "payload[1].a"),
    }


@pytest.mark.rule("CMP-001")
def test_a_thousand_faults_are_reported_in_twenty_lines_and_a_number() -> None:
    _, _, err = compute("shuffle", json.dumps({"seed": "", "providers": ["X"] * 1000}))
    assert len(err.splitlines()) == 21
    assert err.endswith("and 980 more\n")


@pytest.mark.rule("CMP-001")
def test_a_misspelt_field_is_pointed_out() -> None:
    assert "there is a field heigth" in " ".join(faults("task-id", json.dumps({"heigth": 1})))
    assert "did you mean w_tier" in faults("priority", spelt("priority", "policy", '{"w_teir": 1}'))[0]


# ------------------------------------------------------------------------------------------------ not one object


@pytest.mark.rule("CMP-001")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "empty, expected one JSON object"),
        (b" \n\t", "empty, expected one JSON object"),
        (b"[]", "an array, expected one JSON object"),
        (b"1", "an integer, expected one JSON object"),
        (b"null", "null, expected one JSON object"),
        (b'"{}"', "text, expected one JSON object"),
        (b"{} {}", "more after the end of the object, at line 1 column 4"),
        (b"{}x", "more after the end of the object, at line 1 column 3"),
        (b"{'a': 1}", "not JSON"),
        (b'{"a": 1', "not JSON"),
        (b'{"a": 01}', "not JSON"),
        (b'{"a": "\n"}', "not JSON"),
        (b'{"a": "\xff"}', "not UTF-8, at byte 7"),
        (b'{"a": "\xed\xa0\x80"}', "not UTF-8, at byte 7"),
        (b"\xef\xbb\xbf{}", "begins with a byte order mark"),
        ("{}".encode("utf-16"), "not UTF-8, at byte 0"),
    ],
)
def test_what_is_not_one_object_is_refused_by_name(text: bytes, says: str) -> None:
    (complaint,) = faults("seed", text)
    assert complaint.startswith(f"standard input: {says}")


@pytest.mark.rule("CMP-001", "CAN-002")
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a": ', "}")])
def test_a_payload_nests_as_deep_as_canonical_bytes_and_no_deeper(opening: str, closing: str) -> None:
    def nested(depth: int) -> str:
        return spelt("task-id", "payload", opening * depth + "null" + closing * depth)

    assert compute("task-id", nested(256))[0] == 0
    for depth in (257, 1_000, 100_000):
        assert faults("task-id", nested(depth)) == ["payload: nested deeper than 256"]


@pytest.mark.rule("CMP-001")
@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[" * 100_000, "standard input"),
        ('{"a": 1, "b": ' + "[" * 100_000, "b"),
        ('{"bytes": "00", "x": {"y": "}]"}, "a b": ' + '{"z": ' * 300, '["a b"]'),
    ],
)
def test_a_hundred_thousand_brackets_are_named_by_their_field(text: str, where: str) -> None:
    assert faults("result-digest", text) == [f"{where}: nested deeper than 256"]


@pytest.mark.rule("CMP-001")
def test_brackets_in_text_and_side_by_side_are_not_depth() -> None:
    assert (
        compute("task-id", spelt("task-id", "payload", json.dumps(["[" * 1000, '"' + "{" * 1000, "\\[" * 500])))[0] == 0
    )
    assert compute("task-id", spelt("task-id", "payload", json.dumps([[]] * 1000)))[0] == 0


@pytest.mark.rule("CMP-001")
@given(st.text(st.sampled_from('{}[]",:\\ue-.0123aN \n'), max_size=40) | st.binary(max_size=30))
def test_no_input_makes_it_crash(text: str | bytes) -> None:
    raw = text.encode() if isinstance(text, str) else text
    try:
        found, inside = read_object(raw)
    except InvalidInput:
        return
    assert inside or json.loads(raw) == found


@pytest.mark.rule("CMP-001")
@given(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.text(max_size=9),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=8,
        ),
    )
)
def test_what_json_says_without_floats_is_read_as_it_is(value: dict[str, object]) -> None:
    assert read_object(json.dumps(value).encode()) == (value, {})
