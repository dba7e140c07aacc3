"""OpenQASM as it is read: both versions, registers at a time, and refusals that name the line."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.workloads.qasm import ANY_GATES, STEPS_MAX, WIDTH_MAX, InvalidCircuit, Program, Step, parse
from holdfast.workloads.traps import trap_circuit

pytestmark = pytest.mark.rule("JOB-003")
BELL = (Step("h", (0,)), Step("cx", (0, 1)), Step("measure", (0, 0)), Step("measure", (1, 1)))


@pytest.mark.parametrize(
    "text",
    [
        'OPENQASM 2.0;\ninclude "qelib1.inc";\nqreg q[2]; creg c[2];\nh q[0];\ncx q[0],q[1];\nmeasure q -> c;\n',
        "OPENQASM 3.0;\nqubit[2] q;\nbit[2] c;\nh q[0];\ncx q[0], q[1];\nc = measure q;\n",
        "OPENQASM 3;\nqubit a;\nqubit b;\nbit[2] c;\nh a; // one\n/* two\nlines */ cx a, b; barrier a, b;\n"
        "c[0] = measure a;\nc[1]=measure b;",
        "OPENQASM 3.1;\ninclude 'stdgates.inc';\nqubit[0b1_0] q;\nh() q[0x0];\ncx q [0], q[ 1 ];\n"
        "bit[2] c = measure q;",
        "OPENQASM 2.0;\nqreg q[2];creg c[2];h q[0];CX q[0],q[1];measure q [0]->c [0];measure q[1] -> c[1];",
        "qubit[2]q; h q[0]; cx q[0], q[1]; bit a=measure q[0]; bit b = measure q[1];",
    ],
)
def test_both_versions_say_the_same(text: str) -> None:
    assert parse(text) == Program(2, 2, BELL)


def test_a_register_stands_for_all_of_its_qubits() -> None:
    program = parse(
        "qreg a[2]; qreg b[2]; creg c[4]; h a; cx a, b; cz a[0], b; measure b -> c;".replace("c[4]", "c[2]")
    )
    assert program.steps[:6] == (
        *(Step("h", (0,)), Step("h", (1,))),
        *(Step("cx", (0, 2)), Step("cx", (1, 3))),
        *(Step("cz", (0, 2)), Step("cz", (0, 3))),
    )
    assert (program.depth, sorted(program.gates)) == (5, ["cx", "cz", "h"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("qreg q[1];\ncreg c[1];\nt q[0];\nmeasure q -> c;", "line 3: unknown gate 't', known are cx cy"),
        ("qreg q[1];\n\n\nrx(0.5) q[0];", "line 4: unknown gate 'rx'"),
        ("qreg q[1]; creg c[1];\nif (c == 1) x q[0];", "line 2: unknown gate 'if'"),
        ("qreg q[1];\nx q[1];", "line 2: 'q[1]' is beyond its register"),
        ("qreg q[2];\ncx q[1], q[1];", "line 2: cx of a qubit with itself"),
        ("qreg q[2];\ncx q[1];", "line 2: cx has 1 operands"),
        ("qreg q[2]; creg c[2];\nx c[0];", "line 2: 'c[0]' is not a qubit"),
        ("qreg q[2]; creg c[2];\nmeasure c -> q;", "line 2: 'c' is not a qubit"),
        ("qreg q[2]; creg c[1];\nmeasure q -> c;", "line 2: 2 qubits do not go into 1 bits"),
        ("qreg q[2]; qreg r[3];\ncx q, r;", "line 2: registers of different sizes"),
        ("qreg q[1];\nqreg q[1];", "line 2: 'q' is declared twice"),
        (f"qreg q[{WIDTH_MAX}];\nqubit r;", f"line 2: 1 to {WIDTH_MAX} qubits or bits"),
        ("qreg q[0];", "line 1: 1 to"),
        ("qreg q[1_];", "line 1: '1_' is not a number"),
        ("qreg q[1]; x q[0b];", "line 1: '0b' is not a number"),
        ("qubit q = measure q;", "line 1: 'q' is not a bit"),
        ("qreg q[1];\nx q[0]", "line 2: the last statement does not end"),
        ("qreg q[1]; x q[0];", "it measures nothing"),
        ("", "it measures nothing"),
        ("qreg q[1];\n/* x q[0];" + "/* " * 40_000, "line 2: a comment is not closed"),
        ("x q[0] -> c;", "line 1: 'x q[0] -> c' is not understood"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(InvalidCircuit, match=r"^circuit") as caught:
        parse(text)
    assert says in str(caught.value)


@pytest.mark.parametrize("gate", ["t q[0]", "rx(0.5) q[0]", "u3(pi/2, 0, -pi) q", "ccx q[0], q[1], q[2]", "reset q[1]"])
def test_a_reader_of_any_gates_knows_those_of_other_hardware(gate: str) -> None:
    text = f"qreg q[3]; creg c[3]; {gate}; measure q -> c;"
    assert parse(text, ANY_GATES).gates == {gate.partition(" ")[0].partition("(")[0]}
    with pytest.raises(InvalidCircuit, match="unknown gate"):
        parse(text)


@pytest.mark.parametrize(
    "statement", ["if (c == 1) x q[0]", "gate g a { x a", "for i in [0:2] x q[i]", "def f(int i) -> bit"]
)
def test_what_is_no_gate_is_refused_by_it_too(statement: str) -> None:
    with pytest.raises(InvalidCircuit, match="line 1"):
        parse(f"qreg q[3]; creg c[3]; {statement}; measure q -> c;", ANY_GATES)


def test_a_circuit_that_takes_too_long_is_not_read_to_its_end() -> None:
    with pytest.raises(InvalidCircuit, match="too long"):
        parse("qreg q[1]; creg c[1];" + "x q;" * 200, is_late=iter([False, False, True]).__next__)


def test_there_are_not_any_number_of_steps() -> None:
    with pytest.raises(InvalidCircuit, match=f"more than {STEPS_MAX} steps"):
        parse(f"qreg q[{WIDTH_MAX}];" + "x q;" * (STEPS_MAX // WIDTH_MAX + 1))


@given(st.text("01", min_size=1, max_size=40))
def test_traps_are_circuits_that_can_be_read(answer: str) -> None:
    program = parse(trap_circuit(answer))
    flipped = [step.operands[0] for step in program.steps if step.name == "x"]
    assert flipped == [at for at, bit in enumerate(answer) if bit == "1"]


@given(st.text("qregc[]123; ->=,\nxhmeasure/*", max_size=60))
def test_noise_is_refused_by_name(text: str) -> None:
    with suppress(InvalidCircuit):
        assert parse(text).steps
