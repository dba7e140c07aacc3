"""The stabiliser simulator against all amplitudes: what is certain is certain, and what is open is one half."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.counts import counts
from tests.workloads.dense_simulator import Dense

from holdfast.workloads.qasm.program import MEASURE, ONE_QUBIT_GATES, RESET, TWO_QUBIT_GATES, Step
from holdfast.workloads.stabiliser import Tableau, run

pytestmark = pytest.mark.rule("PRF-002")


@st.composite
def circuits(draw: Any) -> tuple[int, list[Step]]:
    qubits = draw(st.integers(1, 4))
    one = st.builds(Step, st.sampled_from(sorted(ONE_QUBIT_GATES)), st.tuples(st.integers(0, qubits - 1)))
    measured = st.builds(Step, st.just(MEASURE), st.tuples(st.integers(0, qubits - 1), st.just(0)))
    pairs = st.permutations(range(qubits)).map(lambda order: tuple(order[:2]))
    two = st.builds(Step, st.sampled_from(sorted(TWO_QUBIT_GATES)), pairs)
    steps = st.lists(st.one_of(one, two, measured) if qubits > 1 else st.one_of(one, measured), max_size=40)
    return qubits, [*draw(steps), *(Step(MEASURE, (at, 0)) for at in range(qubits))]


@given(circuits(), st.randoms(use_true_random=False))
def test_every_measurement_is_as_the_amplitudes_say(circuit: tuple[int, list[Step]], chance: Any) -> None:
    assert_as_the_amplitudes_say(*circuit, chance)


def test_long_circuits_too() -> None:
    """A wrong sign of a product shows seldom: this many circuits of this length have caught each."""
    chance = Random(1)
    for _ in range(counts(800, 20_000)):
        qubits = chance.randrange(2, 5)
        assert_as_the_amplitudes_say(qubits, [some_step(chance, qubits) for _ in range(40)], chance)


def some_step(chance: Random, qubits: int) -> Step:
    kind, at = chance.randrange(10), tuple(chance.sample(range(qubits), 2))
    if kind < 2:
        return Step(MEASURE, (at[0], 0)) if kind else Step(RESET, at[:1])
    return (
        Step(chance.choice(sorted(ONE_QUBIT_GATES)), at[:1])
        if kind < 6
        else Step(chance.choice(sorted(TWO_QUBIT_GATES)), at)
    )


def assert_as_the_amplitudes_say(qubits: int, steps: list[Step], chance: Random) -> None:
    state, oracle = Tableau(qubits), Dense(qubits)
    for step in steps:
        if step.name not in (MEASURE, RESET):
            run(state, [step], [], lambda: 0)
            oracle.gate(step)
            continue
        tossed: list[int] = []

        def coin(tossed: list[int] = tossed) -> int:
            tossed.append(chance.randrange(2))
            return tossed[-1]

        at = step.operands[0]
        one = oracle.chance_of_one(at)
        if step.name == RESET:
            state.reset(at, coin)
            oracle.reset(at, tossed[0] if tossed else round(one))
            assert state.measure(at, lambda: pytest.fail("a reset qubit is 0")) == 0
            continue
        outcome = state.measure(at, coin)
        expected = 0.5 if tossed else float(outcome)
        assert one == pytest.approx(expected, abs=1e-9)
        assert not tossed or outcome == tossed[0]
        oracle.collapse(at, outcome)


def test_what_was_measured_stays() -> None:
    state = Tableau(2)
    run(state, [Step("h", (0,)), Step("cx", (0, 1))], [], lambda: 0)
    assert state.measure(1, lambda: 1) == 1
    assert [state.measure(at, lambda: pytest.fail("nothing is open")) for at in (0, 1, 0)] == [1, 1, 1]


def test_what_a_reset_qubit_was_entangled_with_keeps_the_outcome() -> None:
    for toss in (0, 1):
        state = Tableau(2)
        run(state, [Step("h", (0,)), Step("cx", (0, 1)), Step(RESET, (0,))], [], itertools.repeat(toss).__next__)
        assert [state.measure(at, lambda: pytest.fail("nothing is open")) for at in (0, 1)] == [0, toss]


def test_a_copy_goes_its_own_way() -> None:
    state = Tableau(1)
    state.h(0)
    other = state.copy()
    assert state.measure(0, lambda: 1) == 1
    assert other.measure(0, lambda: 0) == 0


def test_two_hundred_and_fifty_six_qubits_agree() -> None:
    steps = [Step("h", (0,)), *(Step("cx", (at, at + 1)) for at in range(255))]
    steps += [Step(MEASURE, (at, at)) for at in range(256)]
    tosses = iter([1])
    bits = [0] * 256
    run(Tableau(256), steps, bits, lambda: next(tosses))
    assert bits == [1] * 256
