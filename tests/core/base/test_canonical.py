"""Canonical bytes: one value, one spelling, on every machine."""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core import naive

from holdfast.core.base.canonical import DEPTH_MAX, H, HashDomain, NotCanonical, canonical, decode

INTEGERS = st.integers(-(2**64), 2**64 - 1) | st.sampled_from([0, 23, 24, 255, 256, 65535, 65536, 2**32 - 1, 2**32])
TEXT = st.text(max_size=30)
SCALARS = st.none() | st.booleans() | INTEGERS | TEXT | st.binary(max_size=30)
KEYS = TEXT | INTEGERS | st.binary(max_size=30)


def nested(keys: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.recursive(
        SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=5), max_leaves=15
    )


VALUES = nested(KEYS)
TEXT_KEYED = nested(TEXT)


def exact(value: object) -> object:
    """The value with its types spelt out: for Python True == 1, for canonical bytes it is not."""
    if isinstance(value, dict):
        return {(type(key), key): exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [exact(item) for item in value]
    return type(value), value


# ------------------------------------------------------------------------------------------------ H


@pytest.mark.rule("CAN-001")
@given(st.text(st.characters(codec="ascii")), st.lists(st.binary(max_size=40) | st.integers(0, 2**64 - 1), max_size=5))
def test_h_frames_the_tag_and_every_field(tag: str, fields: list[bytes | int]) -> None:
    assert H(tag, *fields) == naive.h(tag, *fields)


@pytest.mark.rule("CAN-001")
def test_h_keeps_neighbouring_fields_apart() -> None:
    assert len({H("t", b"ab", b"c"), H("t", b"a", b"bc"), H("t", b"abc"), H("t", b"abc", b""), H("ta", b"bc")}) == 5


@pytest.mark.rule("CAN-001")
def test_h_reads_an_integer_as_eight_bytes_big_endian() -> None:
    assert H("t", 258) == H("t", b"\0\0\0\0\0\0\1\2")


@pytest.mark.rule("CAN-001")
@pytest.mark.parametrize("outside", [-1, 2**64])
def test_h_takes_no_integer_that_needs_more_than_eight_bytes(outside: int) -> None:
    with pytest.raises(OverflowError):
        H("t", outside)


# ------------------------------------------------------------------------------------------------ encoding


@pytest.mark.rule("CAN-002")
@pytest.mark.parametrize(
    ("value", "spelling"),
    [
        (0, "00"),
        (23, "17"),
        (24, "1818"),
        (255, "18ff"),
        (256, "190100"),
        (1000, "1903e8"),
        (65536, "1a00010000"),
        (1000000, "1a000f4240"),
        (1000000000000, "1b000000e8d4a51000"),
        (2**64 - 1, "1bffffffffffffffff"),
        (-(2**64), "3bffffffffffffffff"),
        (-1, "20"),
        (-100, "3863"),
        (-1000, "3903e7"),
        (False, "f4"),
        (True, "f5"),
        (None, "f6"),
        (b"", "40"),
        (b"\1\2\3\4", "4401020304"),
        ("", "60"),
        ('"\\', "62225c"),
        ("ü", "62c3bc"),
        ("水", "63e6b0b4"),
        ("\U00010151", "64f0908591"),
        ([], "80"),
        ([1, [2, 3], [4, 5]], "8301820203820405"),
        ((1, (2,)), "82018102"),
        (list(range(1, 26)), "98190102030405060708090a0b0c0d0e0f101112131415161718181819"),
        ({}, "a0"),
        ({1: 2, 3: 4}, "a201020304"),
        ({"a": 1, "b": [2, 3]}, "a26161016162820203"),
        (["a", {"b": "c"}], "826161a161626163"),
    ],
)
def test_the_examples_of_the_rfc_are_spelt_as_printed_there(value: object, spelling: str) -> None:
    assert canonical(value).hex() == spelling


@pytest.mark.rule("CAN-002")
def test_keys_stand_in_the_order_of_their_bytes() -> None:
    example_of_the_rfc = [10, 100, -1, "z", "aa"]
    assert list(decode(canonical(dict.fromkeys(reversed(example_of_the_rfc))))) == example_of_the_rfc  # type: ignore[call-overload]


@pytest.mark.rule("CAN-002")
@given(VALUES)
def test_every_value_comes_back_as_it_was_type_for_type(value: object) -> None:
    assert exact(decode(canonical(value))) == exact(value)


@pytest.mark.rule("CAN-002")
@given(VALUES, VALUES)
def test_different_values_have_different_bytes(one: object, other: object) -> None:
    assert (canonical(one) == canonical(other)) == (exact(one) == exact(other))


@pytest.mark.rule("CAN-002")
@given(st.dictionaries(KEYS, VALUES, max_size=8), st.randoms(use_true_random=False))
def test_the_order_in_which_keys_were_written_does_not_matter(value: dict[object, object], chance: object) -> None:
    keys = list(value)
    chance.shuffle(keys)  # type: ignore[attr-defined]
    assert canonical({key: value[key] for key in keys}) == canonical(value)


@pytest.mark.rule("CAN-002")
@given(VALUES)
def test_a_naive_encoder_gives_the_same_bytes(value: object) -> None:
    assert canonical(value) == naive.cbor(value)


@pytest.mark.rule("CAN-002")
@given(TEXT_KEYED)
def test_another_library_gives_the_same_bytes_where_its_key_order_agrees(value: object) -> None:
    # cbor2 sorts by length first (RFC 7049); for text keys that is the bytewise order.
    assert canonical(value) == cbor2.dumps(value, canonical=True)


@pytest.mark.rule("CAN-002")
@given(VALUES, st.floats())
def test_a_float_is_refused_wherever_it_stands(value: object, number: float) -> None:
    for holder in (number, [value, number], {"a": value, "b": {"c": number}}):
        with pytest.raises(NotCanonical, match="float"):
            canonical(holder)


@pytest.mark.rule("CAN-002")
@pytest.mark.parametrize(
    ("value", "path", "says"),
    [
        ({"a": [1, {"b": 1.5}]}, "a[1].b", "float"),
        ([[], [0, 2**64]], "[1][1]", "2⁶⁴"),
        ({"a": -(2**64) - 1}, "a", "2⁶⁴"),
        ({"a": "\ud800"}, "a", "surrogate"),
        ({"a": {"\udfff": 1}}, "a.\\udfff", "surrogate"),
        ({"a": {True: 1}}, "a.True", "key of type bool"),
        ({"a": {None: 1}}, "a.None", "key of type NoneType"),
        ({"a": {1, 2}}, "a", "set"),
        (1.0, "", "float"),
    ],
)
def test_a_value_without_canonical_bytes_is_named_with_its_path(value: object, path: str, says: str) -> None:
    with pytest.raises(NotCanonical, match=says) as refusal:
        canonical(value)
    assert refusal.value.path == path


# ------------------------------------------------------------------------------------------------ depth


def arrays(depth: int) -> object:
    value: object = 0
    for _ in range(depth):
        value = [value]
    return value


def maps(depth: int) -> object:
    value: object = 0
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.rule("CAN-002")
@pytest.mark.parametrize("make", [arrays, maps])
def test_nesting_is_allowed_up_to_the_limit_and_refused_above_it(make: object) -> None:
    deep, too_deep = make(DEPTH_MAX), make(DEPTH_MAX + 1)  # type: ignore[operator]
    assert decode(canonical(deep)) == deep
    with pytest.raises(NotCanonical, match="nested deeper"):
        canonical(too_deep)
    with pytest.raises(NotCanonical, match="nested deeper"):
        decode(naive.cbor(too_deep))


@pytest.mark.rule("CAN-002")
def test_a_hundred_thousand_open_arrays_are_refused_not_followed() -> None:
    with pytest.raises(NotCanonical, match="nested deeper"):
        decode(b"\x81" * 100_000)


# ------------------------------------------------------------------------------------------------ decoding

OTHER_SPELLINGS = {
    "1800": "0 in two bytes",
    "1817": "23 in two bytes",
    "190018": "24 in three bytes",
    "1900ff": "255 in three bytes",
    "1a0000ffff": "65535 in five bytes",
    "1b00000000ffffffff": "2**32-1 in nine bytes",
    "3800": "-1 in two bytes",
    "5800": "no bytes, length in two",
    "7800": "no text, length in two",
    "9800": "no items, length in two",
    "b800": "no pairs, length in two",
    "1c": "a reserved length",
    "1f": "an integer without end",
    "5f40ff": "bytes in pieces",
    "7f60ff": "text in pieces",
    "9fff": "an array without length",
    "bfff": "a map without length",
    "ff": "a break alone",
    "f90000": "a half float",
    "fa00000000": "a float",
    "fb0000000000000000": "a double",
    "f97e00": "not a number",
    "f7": "undefined",
    "e0": "an unassigned simple value",
    "f814": "false in two bytes",
    "f8ff": "a simple value in two bytes",
    "c000": "a tagged value",
    "c240": "a big number",
    "a201000100": "a duplicate key",
    "a202000100": "keys out of order",
    "a26161006000": "a longer key before a shorter one",
    "a1f500": "a boolean as key",
    "a1f600": "null as key",
    "a18000": "an array as key",
    "61ff": "text that is not UTF-8",
    "63eda080": "a surrogate in text",
    "62c080": "an overlong zero in text",
    "": "nothing",
    "0000": "something after the end",
    "18": "an integer cut short",
    "4401": "bytes cut short",
    "8201": "an array cut short",
    "a101": "a map cut short",
    "5bffffffffffffffff": "bytes longer than memory",
    "9bffffffffffffffff": "an array longer than memory",
    "bbffffffffffffffff": "a map longer than memory",
}


@pytest.mark.rule("CAN-002")
@pytest.mark.parametrize("spelling", OTHER_SPELLINGS, ids=OTHER_SPELLINGS.get)
def test_any_other_spelling_is_refused(spelling: str) -> None:
    with pytest.raises(NotCanonical, match="byte "):
        decode(bytes.fromhex(spelling))


@pytest.mark.rule("CAN-002")
@given(VALUES, st.data())
def test_altered_bytes_are_refused_or_are_the_canonical_bytes_of_something_else(
    value: object, data: st.DataObject
) -> None:
    raw = bytearray(canonical(value))
    at = data.draw(st.integers(0, len(raw) - 1))
    match data.draw(st.sampled_from(["change", "insert", "delete", "cut"])):
        case "change":
            raw[at] ^= data.draw(st.integers(1, 255))
        case "insert":
            raw.insert(at, data.draw(st.integers(0, 255)))
        case "delete":
            del raw[at]
        case _:
            del raw[at:]
    assert_refused_or_canonical(bytes(raw))


@pytest.mark.rule("CAN-002")
@given(st.binary(max_size=40))
def test_random_bytes_are_refused_or_canonical(raw: bytes) -> None:
    assert_refused_or_canonical(raw)


def assert_refused_or_canonical(raw: bytes) -> None:
    try:
        value = decode(raw)
    except NotCanonical:
        return
    assert canonical(value) == raw


@pytest.mark.rule("CAN-003")
def test_a_grace_window_recognises_both_versions_and_makes_only_the_newest() -> None:
    before, window, after = (HashDomain("holdfast.example", versions) for versions in ((1,), (1, 2), (2,)))
    old, new = before.make(7, b"x"), window.make(7, b"x")
    assert (old, new) == (H("holdfast.example.v1", 7, b"x"), H("holdfast.example.v2", 7, b"x"))
    assert (window.matching_version(old, 7, b"x"), window.matching_version(new, 7, b"x")) == (1, 2)
    assert after.matching_version(old, 7, b"x") is None
    assert window.matching_version(old, 8, b"x") is None
