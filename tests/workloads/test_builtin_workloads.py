"""What comes with Holdfast: digits and circuits, the same bytes for whoever does it, and proofs that hold."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.verifiers.verification_inputs import verification_input, verify

from holdfast.agent.executors.built_in import BUILT_IN, built_in_executors
from holdfast.agent.executors.registry import ExecutorRegistry
from holdfast.core.base.canonical import canonical, decode
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Kind
from holdfast.core.job.spec import WorkPayload, read_payload, read_work_payload
from holdfast.verifiers.recompute import recompute_method
from holdfast.verifiers.traps import traps_method
from holdfast.workloads import input_check
from holdfast.workloads.circuit import SHOTS_MAX, run_circuit
from holdfast.workloads.digits import INK, PAPER, glyph, recognise
from holdfast.workloads.input_check import is_input_valid

pytestmark = pytest.mark.rule("PRF-002")
GHZ = "OPENQASM 3.0;\nqubit[3] q;\nbit[3] c;\nh q[0];\ncx q[0], q[1];\ncx q[1], q[2];\nc = measure q;\n"


def circuit_payload(**told: Any) -> WorkPayload:
    spec = {"circuit": GHZ, "shots": 40, "width": 3, "depth": 4, **told}
    return work_payload({"kind": "QUANTUM", "spec": spec})


def work_payload(payload: dict[str, Any]) -> WorkPayload:
    read = read_payload(payload)
    assert not isinstance(read, Refused), read
    return read_work_payload(read.raw)


def shots(raw: bytes) -> list[str]:
    found: Any = decode(raw)
    return list(found["shots"])


# ------------------------------------------------------------------------------------------------ circuits


def test_a_ghz_circuit_has_two_answers_and_each_about_half_the_time() -> None:
    found = Counter(shots(run_circuit(circuit_payload(shots=2_000))))
    assert set(found) == {"000", "111"}
    assert abs(found["000"] - 1_000) < 150


def test_the_same_request_gives_the_same_bytes_and_another_one_others() -> None:
    assert run_circuit(circuit_payload()) == run_circuit(circuit_payload())
    assert shots(run_circuit(circuit_payload())) != shots(run_circuit(circuit_payload(depth=5)))


def test_what_is_measured_in_the_middle_counts_for_what_follows() -> None:
    text = "qubit[1] q; bit[2] c; h q[0]; c[0] = measure q[0]; x q[0]; c[1] = measure q[0];"
    found = Counter(shots(run_circuit(circuit_payload(circuit=text, width=2, depth=9, shots=200))))
    assert set(found) == {"01", "10"}


def test_a_reset_is_drawn_as_a_measurement_is_and_gives_the_same_bytes_again() -> None:
    text = "gate pair a, b { h a; cx a, b; } qubit[2] q; bit[2] c; pair q[0], q[1]; reset q[0]; c = measure q;"
    payload = circuit_payload(circuit=text, width=2, depth=9, shots=200)
    assert set(shots(run_circuit(payload))) == {"00", "01"}
    assert run_circuit(payload) == run_circuit(payload)
    assert sha256(run_circuit(payload)).hexdigest()[:16] == "2558ec3439f35e71"


@pytest.mark.parametrize("trap_ppm", [1, 250_000, 1_000_000])
def test_traps_come_out_right(trap_ppm: int) -> None:
    payload = circuit_payload(trap_ppm=trap_ppm)
    finding = traps_method(verify).verify(
        verification_input(decode(payload.raw), run_circuit(payload), kind=2, method="traps")
    )
    assert (finding.is_good, finding.reasons[-30:]) == (True, "1000000 ppm, 900000 are needed")


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"width": 2}, "width: 2, but the circuit has 3 bits"),
        ({"depth": 3}, "depth: 3, but the circuit has 4"),
        ({"gates": ["h"]}, "gates: the circuit also has cx"),
        ({"shots": SHOTS_MAX + 1}, f"shots: at most {SHOTS_MAX}"),
        ({"circuit": "qreg q[3]; creg c[3]; t q[0];"}, "line 1: unknown gate 't'"),
    ],
)
def test_what_cannot_be_run_as_asked_is_not_run(told: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        run_circuit(circuit_payload(**told))
    assert says in str(caught.value)


def test_the_example_can_be_run() -> None:
    payload = work_payload(json.loads((Path(__file__).parents[2] / "examples/ghz.json").read_text("utf-8")))
    finding = traps_method(verify).verify(
        verification_input(decode(payload.raw), run_circuit(payload), kind=2, method="traps")
    )
    assert finding.is_good


# ------------------------------------------------------------------------------------------------ digits


def shows(text: str) -> dict[str, Any]:
    found: Any = decode(recognise(work_payload({"kind": "AI", "spec": {"model": "digits", "prompt": text}})))
    return dict(found)


@pytest.mark.parametrize("digit", range(10))
def test_every_glyph_is_recognised(digit: int) -> None:
    lines = "\n".join(glyph(digit)[at : at + 8] for at in range(0, 64, 8))
    found = shows(lines)
    assert (found["digit"], max(found["scores"])) == (digit, 64)


def distance(one: str, other: str) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


NEAREST = min(distance(glyph(a), glyph(b)) for a, b in combinations(range(10), 2))


@given(st.integers(0, 9), st.sets(st.integers(0, 63), max_size=(NEAREST - 1) // 2))
def test_a_few_wrong_points_do_not_matter(digit: int, wrong: set[int]) -> None:
    turned = {INK: PAPER, PAPER: INK}
    picture = "".join(turned[sign] if at in wrong else sign for at, sign in enumerate(glyph(digit)))
    found = shows(picture)
    assert found["digit"] == digit
    assert found["scores"] == [64 - 2 * distance(picture, glyph(each)) for each in range(10)]
    assert found["margin"] > 0


@pytest.mark.parametrize("text", ["#", "x" * 64, "." * 65])
def test_what_is_no_picture_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="8 lines of 8 signs"):
        shows(text)


# ------------------------------------------------------------------------------------------------ for agents, verifiers


@pytest.mark.parametrize(
    "payload",
    [
        {"kind": "AI", "spec": {"model": "digits", "prompt": glyph(7)}},
        {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}},
        {"kind": "QUANTUM", "spec": {"circuit": GHZ, "shots": 9, "width": 3, "depth": 4, "trap_ppm": 200_000}},
    ],
)
def test_whoever_does_it_again_gets_the_same(payload: dict[str, Any]) -> None:
    raw = work_payload(payload).raw
    found = ExecutorRegistry(BUILT_IN).find(payload["kind"], raw)
    assert not isinstance(found, Refused)
    output = found[0].run(found[1], cancel=None)  # type: ignore[arg-type, union-attr]
    assert recompute_method(verify).verify(verification_input(payload, output)).is_good
    assert not recompute_method(verify).verify(verification_input(payload, output + b"?")).is_good


@pytest.mark.rule("MAT-002")
def test_an_agent_says_which_circuits_it_takes() -> None:
    registry = built_in_executors(["digits"], circuits=True)
    assert isinstance(registry, ExecutorRegistry)
    told = registry.capabilities()
    assert told["AI"] == {"models": ["digits"]}
    assert set(told["QUANTUM"]) == {"gates", "depth_max", "width_max"}
    assert canonical(told)
    assert isinstance(only := built_in_executors([], circuits=True), ExecutorRegistry)
    assert set(only.capabilities()) == {Kind.QUANTUM.value}


BELL = "OPENQASM 3; qubit[2] q; bit[2] c; h q[0]; cx q[0], q[1]; c = measure q;"


@pytest.mark.rule("JOB-012")
@pytest.mark.parametrize(
    ("spec", "is_valid"),
    [
        ({"model": "echo", "prompt": "hi"}, True),
        ({"model": "digits", "prompt": glyph(3)}, True),
        ({"model": "digits", "input": "no picture"}, False),
        ({"model": "sleep", "prompt": "hi", "params": {"ms": 5}}, True),
        ({"model": "sleep", "prompt": "hi", "params": {"ms": "long"}}, False),
        ({"model": "somebody's", "prompt": "hi"}, None),
        ({"circuit": BELL, "shots": 10, "width": 2, "depth": 3}, True),
        ({"circuit": BELL, "shots": 10, "width": 3, "depth": 3}, False),
        ({"circuit": BELL[:-1], "shots": 10, "width": 2, "depth": 3}, False),
        ({"circuit": BELL.replace("h q", "t q"), "shots": 10, "width": 2, "depth": 3}, None),
        ({"circuit": BELL, "shots": 100_001, "width": 2, "depth": 3}, None),
    ],
)
def test_the_node_judges_inputs_of_its_own_work_and_of_no_other(spec: dict[str, Any], is_valid: bool | None) -> None:
    kind = Kind.QUANTUM if "circuit" in spec else Kind.AI
    assert is_input_valid(WorkPayload(kind, spec)) is is_valid


@pytest.mark.rule("JOB-012")
def test_a_circuit_that_takes_too_long_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_check, "CIRCUIT_MS_MAX", -1)
    spec = {"circuit": BELL[:-1], "shots": 10, "width": 2, "depth": 3}
    assert is_input_valid(WorkPayload(Kind.QUANTUM, spec)) is None
