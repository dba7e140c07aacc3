"""OpenQASM as it is read: both versions, registers at a time, and refusals that name the line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.workloads.qasm.parser import parse
from holdfast.workloads.qasm.program import ANY_GATES, STEPS_MAX, WIDTH_MAX, InvalidCircuit, Program, Step
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
        ("qreg q[1]; creg c[1];\nif (c == 1) x q[0];", "line 2: 'if' is not understood here: no statement"),
        ("qreg q[1];\nx q[1];", "line 2: index 1 is beyond its register of 1"),
        ("qreg q[2];\ncx q[1], q[1];", "line 2: cx of a qubit with itself"),
        ("qreg q[2];\ncx q[1];", "line 2: cx has 1 operands"),
        ("qreg q[2]; creg c[2];\nx c[0];", "line 2: 'c' is not a qubit"),
        ("qreg q[2]; creg c[2];\nmeasure c -> q;", "line 2: 'c' is not a qubit"),
        ("qreg q[2]; creg c[1];\nmeasure q -> c;", "line 2: 2 qubits do not go into 1 bits"),
        ("qreg q[2]; qreg r[3];\ncx q, r;", "line 2: registers of different sizes"),
        ("qreg q[1];\nqreg q[1];", "line 2: 'q' is declared twice"),
        (f"qreg q[{WIDTH_MAX}];\nqubit r;", f"line 2: 1 to {WIDTH_MAX} qubits or bits"),
        ("qreg q[0];", "line 1: 1 to"),
        ("qreg q[1_];", "line 1: '_' is not understood here: ']' is expected"),
        ("qreg q[1]; x q[0b];", "line 1: 'b' is not understood here: ']' is expected"),
        ("qubit q = measure q;", "line 1: '=' is not understood here: ';' is expected"),
        ("qreg q[1];\nx q[0]", "line 2: the last statement does not end"),
        ("qreg q[1]; x q[0];", "it measures nothing"),
        ("", "it measures nothing"),
        ("qreg q[1];\n/* x q[0];" + "/* " * 40_000, "line 2: a comment is not closed"),
        ("qubit q; x q -> c;", "line 1: '->' is not understood here: ';' is expected"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(InvalidCircuit, match=r"^circuit") as caught:
        parse(text)
    assert says in str(caught.value)


@pytest.mark.parametrize("gate", ["t q[0]", "rx(0.5) q[0]", "u3(pi/2, 0, -pi) q", "ccx q[0], q[1], q[2]"])
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


# ------------------------------------------------------------------------------------------------ parts, definitions


def steps_of(statements: str) -> list[tuple[str, tuple[int, ...]]]:
    program = parse(f"OPENQASM 3; qubit[4] q; qubit[2] r; bit[4] c; {statements} c[0] = measure q[0];")
    return [(step.name, step.operands) for step in program.steps[:-1]]


@pytest.mark.parametrize(
    ("part", "qubits"),
    [
        ("q[1:2]", [1, 2]),
        ("q[0:2:3]", [0, 2]),
        ("q[3:-2:0]", [3, 1]),
        ("q[-2:]", [2, 3]),
        ("q[:1]", [0, 1]),
        ("q[::-1:0]", None),
        ("q[:-1:0]", [3, 2, 1, 0]),
        ("q[{3, 0}]", [3, 0]),
        ("q[{3, 0, 2}][1:]", [0, 2]),
        ("q[1:3][::1]", [1, 2]),
        ("q[1:3][-1]", [3]),
        ("r[-1]", [5]),
        ("q[2 * (1 + 0x1) - 1]", [3]),
        ("q[2:1]", None),
        ("q[1:4]", None),
        ("q[-5]", None),
        ("q[0:0:2]", None),
        ("q[{1, 1}]", None),
        ("q[0, 1]", None),
        ("q[1.0]", None),
        ("q[1][0]", None),
        ("q[]", None),
        ("q[9 ** 9 ** 9]", None),
    ],
)
def test_a_part_of_a_register_is_what_its_index_selects(part: str, qubits: list[int] | None) -> None:
    if qubits is None:
        with pytest.raises(InvalidCircuit, match="line 1"):
            steps_of(f"x {part};")
    else:
        assert steps_of(f"x {part};") == [("x", (qubit,)) for qubit in qubits]


def test_an_alias_names_parts_of_several_registers() -> None:
    assert steps_of("let a = q[2:3] ++ r[1]; reset a[:-1:0]; cx a[0], a[2]; x r; barrier a, q;") == [
        *(("reset", (5,)), ("reset", (3,)), ("reset", (2,))),
        *(("cx", (2, 5)), ("x", (4,)), ("x", (5,))),
    ]


def test_a_measurement_may_keep_its_outcome_for_itself() -> None:
    assert steps_of("measure r; measure q[1:2] -> c[{3, 1}];")[:4] == [
        *(("measure", (4,)), ("measure", (5,))),
        *(("measure", (1, 3)), ("measure", (2, 1))),
    ]


def test_a_gate_that_a_circuit_defines_is_the_steps_that_it_stands_for() -> None:
    bell = "gate bell a, b { h a; barrier a, b; cx a, b; } gate twice(t) a, b, c { bell a, c; bell(  ) b, c; }"
    assert steps_of(bell + "twice(pi / 2) q[0], q[1], r;") == [
        *(("h", (0,)), ("cx", (0, 4)), ("h", (1,)), ("cx", (1, 4))),
        *(("h", (0,)), ("cx", (0, 5)), ("h", (1,)), ("cx", (1, 5))),
    ]
    assert steps_of("gate nothing a {} nothing q;") == []


@pytest.mark.parametrize(
    ("statements", "says"),
    [
        ("gate g a { g a; }", "unknown gate 'g'"),
        ("gate g a { x a; } gate g a { x a; }", "'g' is declared twice"),
        ("gate q a { x a; }", "'q' is declared twice"),
        ("gate g a { x a; } let g = q;", "'g' is declared twice"),
        ("gate g a, a { x a; }", "'a' is declared twice"),
        ("gate g a { x b; }", "'b' is not a qubit of this gate"),
        ("gate g a { x a[0]; }", "'a' is one qubit and has no index"),
        ("gate g a { rz(t) a; }", "unknown parameter 't'"),
        ("gate g a, b { cx a, a; }", "cx of a qubit with itself"),
        ("gate g a, b { cx a; }", "cx has 1 operands"),
        ("gate g(t) a { x a; } g q;", "g has 0 parameters"),
        ("gate g(t) a { x a; } g(1) q[0], q[1];", "g has 2 operands"),
        ("gate g a { reset a; }", "'reset' is not understood here"),
        ("gate g a { x a; ", "'[' is not understood here: a name is expected"),
        ("gate g { }", "'}' is not understood here: the gate's qubits are expected"),
        ("x q; gate x a { h a; }", "gate 'x' is used before its definition"),
        ("include 'stdgates.inc'; gate h a { x a; }", "'h' is declared twice"),
        ("gate h a { x a; } include 'qelib1.inc';", "'h' is declared twice: qelib1.inc has it"),
        ("include 'mine.inc';", "'mine.inc' cannot be included, only the standard libraries qelib1.inc and stdgates"),
        ("inv @ s q;", "'inv' is not understood here"),
        ("OPENQASM 3;", "'OPENQASM' is not understood here"),
        ("x q;;", "';' is not understood here"),
        ("x\u00a0q;", "is not understood"),
    ],
)
def test_what_a_circuit_cannot_say_is_refused_by_name(statements: str, says: str) -> None:
    with pytest.raises(InvalidCircuit, match=r"^circuit, line 1: ") as caught:
        steps_of(statements)
    assert says in str(caught.value)


@pytest.mark.parametrize("version", ["1.0", "4", "2_0", ""])
def test_other_versions_are_refused_by_name(version: str) -> None:
    with pytest.raises(InvalidCircuit, match=r"is not (known|understood)"):
        parse(f"OPENQASM {version}; qubit q; bit c = measure q;")


def test_a_gate_of_other_hardware_can_be_part_of_a_definition() -> None:
    text = (
        "qreg q[2]; creg c[2]; gate rzz(t) a, b { cx a, b; rz(t / 2) b; cx a, b; } rzz(0.1) q[0], q[1]; measure q -> c;"
    )
    assert parse(text, ANY_GATES).gates == {"cx", "rz"}
    with pytest.raises(InvalidCircuit, match="gate 'g' is used before its definition"):
        parse("gate g a { g a; }", ANY_GATES)


# ------------------------------------------------------------------------------------------------ what is bounded


@pytest.mark.rule("JOB-012")
def test_definitions_that_grow_exponentially_are_refused_by_name_and_empty_ones_are_nothing() -> None:
    chain = "".join(f"gate g{n + 1} a {{ {f'g{n} a; ' * 10}}}\n" for n in range(30))
    text = f"qubit q; bit c; gate g0 a {{ INNERMOST }}\n{chain} g30 q; c = measure q;"
    with pytest.raises(InvalidCircuit, match=f"line 6: more than {STEPS_MAX} steps, with what definitions"):
        parse(text.replace("INNERMOST", "x a;"))
    assert len(parse(text.replace("INNERMOST", "")).steps) == 1


HOSTILE: dict[str, Callable[[int], str]] = {
    "calls": lambda n: "x q[0]; cx q[1],r[0];" * n,
    "distinct calls": lambda n: "".join(f"rz({at}.5) q[{at % 9}];" for at in range(n)),
    "comments": lambda n: "/* // */ x /**/ q;" * n,
    "open comments": lambda n: "x q[0]; " + "/* " * n,
    "parentheses": lambda n: "rz(" + "(" * n + "1" + ")" * n + ") q;",
    "signs": lambda n: "rz(" + "-" * n + "1) q;",
    "sums": lambda n: "rz(" + "1+" * n + "1) q;",
    "digits": lambda n: "rz(" + "1" * n + ") q; x q[" + "9" * n + "];",
    "sets": lambda n: "x q[{" + "0," * n + "}];",
    "ranges": lambda n: "barrier q[0:8];" * n,
    "indexes": lambda n: "x q" + "[:]" * n + ";",
    "aliases": lambda n: "".join(f"let a{at} = q;" for at in range(n)),
    "definitions": lambda n: "".join(f"gate g{at + 1} a {{ g{at} a; }}" for at in range(n)),
    "empty definitions": lambda n: "gate e a {}" + "e q;" * n,
    "names": lambda n: "q" * n + " q;" + "barrier q" + ",q" * n + ";",
    "braces": lambda n: "gate g a {" + "{" * n,
    "no end": lambda n: "x q " * n,
}


@pytest.mark.rule("JOB-012")
@pytest.mark.parametrize("family", HOSTILE)
def test_twice_the_text_is_at_most_twice_the_work(family: str) -> None:
    """Calls of functions are counted, ours and the interpreter's, whether the circuit is accepted or refused."""
    once, twice = (calls_to_parse(HOSTILE[family](n)) for n in (400, 800))
    assert twice <= 2 * once + 100


def calls_to_parse(text: str) -> int:
    called = 0

    def count(*_: object) -> None:
        nonlocal called
        called += 1

    sys.setprofile(count)
    try:
        with suppress(InvalidCircuit):
            parse("qubit[9] q; qubit[9] r; bit c; " + text + "c = measure q[0];", ANY_GATES)
    finally:
        sys.setprofile(None)
    return called


@pytest.mark.rule("JOB-012")
def test_operands_are_bounded_as_steps_are() -> None:
    singles = ", ".join(f"r[{at}]" for at in range(4_000))
    with pytest.raises(InvalidCircuit, match=f"more than {STEPS_MAX} steps"):
        parse(f"qubit[4000] q; qubit[4000] r; g q, {singles};", ANY_GATES)
    with pytest.raises(InvalidCircuit, match=f"more than {STEPS_MAX} steps"):
        parse("qubit[4000] q; qubit[4000] r;" + "".join(f"let a{at} = q ++ r;" for at in range(13)), ANY_GATES)


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
