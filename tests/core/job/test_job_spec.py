"""What a job may ask for: good payloads of both kinds, and whatever is broken in one is named by its path."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core import naive
from tests.counts import counts

from holdfast.core.base.canonical import decode
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Kind
from holdfast.core.job.spec import GATES_MAX, ParsedPayload, read_payload

pytestmark = pytest.mark.rule("JOB-003")

AI: dict[str, Any] = {
    "kind": "AI",
    "spec": {
        "model": "llama-3",
        "prompt": "hello",
        "params": {"temperature_ppm": 700_000, "stop": "END", "stream": False},
        "precision": "fp16",
    },
    "units": 5,
    "ttl_ms": 60_000,
    "region": "eu",
    "proof": "attested",
}
QUANTUM: dict[str, Any] = {
    "kind": "QUANTUM",
    "spec": {
        "circuit": "OPENQASM 3; qubit q;",
        "shots": 1_000,
        "width": 5,
        "depth": 40,
        "trap_ppm": 50_000,
        "gates": ["h", "cx"],
        "precision": "double",
    },
    "units": 2,
}
COMPUTE: dict[str, Any] = {
    "kind": "COMPUTE",
    "spec": {
        "runtime": "wc",
        "args": ["-l", ""],
        "resources": {"cpu_milli": 500, "memory_mb": 64, "gpus": 0},
        "precision": "fp32",
    },
    "ttl_ms": 60_000,
}
Path = tuple[str | int, ...]


def parsed(value: object) -> ParsedPayload:
    found = read_payload(value)
    assert isinstance(found, ParsedPayload), found
    return found


def named(value: object) -> str:
    """The path that a refusal names."""
    found = read_payload(value)
    assert isinstance(found, Refused), found
    assert (found.rule, found.name) == ("JOB-003", "InvalidParams")
    return found.message.split(": ")[0]


def written(path: Path) -> str:
    return "payload" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def with_(good: dict[str, Any], path: Path, value: object) -> dict[str, Any]:
    changed = copy.deepcopy(good)
    at: Any = changed
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return changed


def without(good: dict[str, Any], path: Path) -> dict[str, Any]:
    changed = copy.deepcopy(good)
    at: Any = changed
    for step in path[:-1]:
        at = at[step]
    del at[path[-1]]
    return changed


def test_a_good_payload_is_read_to_its_canonical_bytes_and_what_a_provider_must_have() -> None:
    found = parsed(AI)
    assert (found.kind, found.units, found.ttl_ms, found.proof) == (Kind.AI, 5, 60_000, "attested")
    assert found.raw == naive.cbor(AI)
    assert decode(found.requirements) == {"model": "llama-3", "precision": "fp16", "region": "eu"}
    found = parsed(QUANTUM)
    assert (found.kind, found.units, found.ttl_ms, found.proof) == (Kind.QUANTUM, 2, None, "attested")
    assert decode(found.requirements) == {"gates": ["cx", "h"], "depth": 40, "width": 5, "precision": "double"}


@pytest.mark.parametrize(
    ("good", "path"),
    [
        (AI, ("units",)),
        (AI, ("ttl_ms",)),
        (AI, ("region",)),
        (AI, ("proof",)),
        (AI, ("spec", "params")),
        (AI, ("spec", "precision")),
        (QUANTUM, ("spec", "trap_ppm")),
        (QUANTUM, ("spec", "gates")),
        (QUANTUM, ("units",)),
    ],
)
def test_what_is_optional_may_be_left_out(good: dict[str, Any], path: Path) -> None:
    parsed(without(good, path))


@pytest.mark.parametrize(
    ("good", "path"),
    [
        (AI, ("kind",)),
        (AI, ("spec",)),
        (AI, ("spec", "model")),
        (QUANTUM, ("spec", "circuit")),
        (QUANTUM, ("spec", "shots")),
        (QUANTUM, ("spec", "width")),
        (QUANTUM, ("spec", "depth")),
    ],
)
def test_what_is_missing_is_named(good: dict[str, Any], path: Path) -> None:
    assert named(without(good, path)) == written(path)


@pytest.mark.parametrize("path", [("unit",), ("spec", "modle"), ("spec", "shots")])
def test_what_nobody_knows_is_named(path: Path) -> None:
    assert named(with_(AI, path, 1)) == written(path)


def test_an_ai_job_has_either_a_prompt_or_an_input() -> None:
    by_reference = with_(without(AI, ("spec", "prompt")), ("spec", "input"), "sha256:00")
    parsed(by_reference)
    for wrong in (without(AI, ("spec", "prompt")), with_(AI, ("spec", "input"), "sha256:00")):
        assert named(wrong) == "payload.spec"


@pytest.mark.parametrize("value", [1.5, 1.0, None, [1], {"a": 1}])
def test_parameters_are_whole_numbers_text_or_truth_values(value: object) -> None:
    assert named(with_(AI, ("spec", "params", "temperature"), value)) == "payload.spec.params.temperature"


@pytest.mark.parametrize(
    ("value", "is_good"), [(2**64 - 1, True), (1 - 2**64, True), (2**64, False), (-(2**65), False)]
)
def test_a_parameter_has_at_most_sixty_four_bits(value: int, is_good: bool) -> None:
    changed = with_(AI, ("spec", "params", "seed"), value)
    assert isinstance(read_payload(changed), ParsedPayload) is is_good
    if not is_good:
        assert named(changed) == "payload.spec.params.seed"


YEAR_MS = 365 * 24 * 3_600_000
BOUNDS: list[tuple[dict[str, Any], Path, int, int]] = [
    (AI, ("units",), 1, 2**62),
    (AI, ("ttl_ms",), 1, YEAR_MS),
    (QUANTUM, ("spec", "shots"), 1, 2**62),
    (QUANTUM, ("spec", "width"), 1, 2**62),
    (QUANTUM, ("spec", "depth"), 1, 2**62),
    (QUANTUM, ("spec", "trap_ppm"), 0, 1_000_000),
]


@pytest.mark.parametrize(("good", "path", "least", "most"), BOUNDS)
def test_a_number_out_of_its_bounds_is_named(good: dict[str, Any], path: Path, least: int, most: int) -> None:
    for value, is_good in ((least - 1, False), (least, True), (most, True), (most + 1, False)):
        changed = with_(good, path, value)
        assert isinstance(read_payload(changed), ParsedPayload) is is_good
        if not is_good:
            assert named(changed) == written(path)


NAMES: list[tuple[dict[str, Any], Path]] = [
    (AI, ("region",)),
    (AI, ("proof",)),
    (AI, ("spec", "model")),
    (AI, ("spec", "precision")),
    (QUANTUM, ("spec", "gates", 1)),
]


@pytest.mark.parametrize(("good", "path"), NAMES)
def test_a_name_has_between_one_and_a_hundred_and_twenty_eight_signs(good: dict[str, Any], path: Path) -> None:
    for value, is_good in (("", False), ("x", True), ("x" * 128, True), ("x" * 129, False)):
        changed = with_(good, path, value)
        assert isinstance(read_payload(changed), ParsedPayload) is is_good
        if not is_good:
            assert named(changed) == written(path)


def test_the_name_of_a_parameter_is_a_name() -> None:
    for name in ("", "x" * 129):
        assert named(with_(AI, ("spec", "params", name), 1)) == "payload.spec.params"
    parsed(with_(AI, ("spec", "params", "x" * 128), 1))


@pytest.mark.rule("ENG-007")
def test_what_stays_in_memory_while_a_job_waits_is_bounded() -> None:
    parsed(with_(QUANTUM, ("spec", "gates"), ["h"] * GATES_MAX))
    assert named(with_(QUANTUM, ("spec", "gates"), ["h"] * (GATES_MAX + 1))) == "payload.spec.gates"


@pytest.mark.parametrize("path", [("spec", "prompt"), ("spec", "params", "stop"), ("region",)])
def test_text_that_is_no_unicode_is_named(path: Path) -> None:
    assert named(with_(AI, path, "a\ud800")) == written(path)


@pytest.mark.parametrize("value", [None, 7, "AI", [], True, {"kind": "TEA", "spec": {}}, {"kind": None, "spec": {}}])
def test_what_is_no_payload_at_all_is_refused(value: object) -> None:
    assert named(value) in ("payload", "payload.kind")


# ------------------------------------------------------------------------------------------------ one broken leaf


def leaves(value: Any, path: Path = ()) -> list[Path]:
    if isinstance(value, dict):
        return [leaf for name, each in value.items() for leaf in leaves(each, (*path, name))]
    if isinstance(value, list):
        return [leaf for at, each in enumerate(value) for leaf in leaves(each, (*path, at))]
    return [path]


LEAVES = [(good, path) for good in (AI, QUANTUM, COMPUTE) for path in leaves(good)]
never = st.one_of(
    st.floats(allow_nan=False),
    st.just("\ud800"),
    st.integers(min_value=2**66),
    st.integers(max_value=-(2**66)),
    st.lists(st.integers(0, 9), max_size=2),
    st.dictionaries(st.text("ab", max_size=3), st.integers(0, 9), max_size=2),
)
"""What no leaf of a payload can be."""


@given(st.sampled_from(LEAVES), never)
@settings(max_examples=counts(150, 3_000))
def test_whichever_leaf_is_broken_the_refusal_names_its_path(leaf: tuple[dict[str, Any], Path], value: object) -> None:
    good, path = leaf
    assert named(with_(good, path, value)) == written(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(LEAVES), json_values, st.sampled_from([with_, lambda good, path, _: without(good, path)]))
@settings(max_examples=counts(100, 3_000))
def test_whatever_is_sent_is_read_or_refused_by_a_path_that_leads_to_it(
    leaf: tuple[dict[str, Any], Path], value: object, change: Callable[..., dict[str, Any]]
) -> None:
    good, path = leaf
    found = read_payload(change(good, path, value))
    if isinstance(found, Refused):
        at = found.message.split(": ")[0]
        is_kind = path == ("kind",)  # another kind reads another spec
        assert is_kind or written(path).startswith(at) or at.startswith(written(path)), found
    else:
        assert decode(found.raw) == change(good, path, value)


@pytest.mark.rule("PRF-002")
def test_traps_are_asked_for_only_where_there_can_be_some() -> None:
    """Whoever takes such a job could prove nothing, and would lose its stake for it."""
    trapped = {**QUANTUM, "proof": "traps"}
    assert parsed(trapped).proof == "traps"
    assert named({**AI, "proof": "traps"}) == "payload.proof"
    for spec, path in (
        ({"trap_ppm": 0}, "payload.spec.trap_ppm"),
        ({"shots": 1_000_001}, "payload.spec.shots"),
    ):
        assert named({**trapped, "spec": {**QUANTUM["spec"], **spec}}) == path
        assert parsed({**QUANTUM, "spec": {**QUANTUM["spec"], **spec}}).proof == "attested"
    assert parsed({**trapped, "spec": {**QUANTUM["spec"], "shots": 1_000_000}}).kind is Kind.QUANTUM


def test_a_compute_job_requires_its_runtime_and_what_its_resources_need() -> None:
    found = parsed(COMPUTE)
    needs = {"runtime": "wc", "cpu_milli": 500, "memory_mb": 64, "precision": "fp32"}
    assert (found.kind, decode(found.requirements)) == (Kind.COMPUTE, needs)
    assert decode(parsed({"kind": "COMPUTE", "spec": {"runtime": "wc"}}).requirements) == {"runtime": "wc"}
    assert named({**COMPUTE, "proof": "traps"}) == "payload.proof"
    assert named(with_(COMPUTE, ("spec", "args"), ["a\0b"])) == "payload.spec.args"
    parsed(with_(COMPUTE, ("spec", "args"), ["x" * 4_096] * 256))
    assert named(with_(COMPUTE, ("spec", "args"), ["x"] * 257)) == "payload.spec.args"
    assert named(with_(COMPUTE, ("spec", "args"), ["x" * 4_097])) == "payload.spec.args[0]"
