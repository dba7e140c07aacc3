"""Circuits beside the reference parser of OpenQASM 3: what its grammar accepts of the subset is read."""

from __future__ import annotations

from random import Random

import pytest
from tests.counts import counts
from tests.workloads.circuit_texts import CircuitText, damaged
from tests.workloads.reference_reader import QUIRKS, ReferenceReader, is_of_subset, read_reference

from holdfast.workloads.qasm.parser import parse
from holdfast.workloads.qasm.program import ANY_GATES, CLIFFORD, Dialect, InvalidCircuit, UnknownSyntax

pytestmark = pytest.mark.rule("JOB-003")


@pytest.mark.parametrize("dialect", [CLIFFORD, ANY_GATES])
def test_what_the_grammar_accepts_of_the_subset_is_read_as_the_reference_reads_it(dialect: Dialect) -> None:
    chance = Random(3)
    for _ in range(counts(80, 2_000)):
        text = CircuitText(chance, is_any_gate=dialect.is_any_gate).text()
        tree = read_reference(text)
        assert tree is not None, text
        assert is_of_subset(tree), text
        assert parse(text, dialect) == ReferenceReader().read(tree), text


def test_what_the_grammar_refuses_is_refused_and_nothing_of_the_subset_is_called_unknown() -> None:
    chance, seen = Random(5), {True: 0, False: 0}
    for _ in range(counts(250, 6_000)):
        text = damaged(chance, CircuitText(chance, is_any_gate=True).text())
        if QUIRKS.search(text):
            continue
        tree = read_reference(text)
        seen[tree is not None] += 1
        try:
            parse(text, ANY_GATES)
        except UnknownSyntax:
            assert tree is None or not is_of_subset(tree), text
        except InvalidCircuit:
            pass
        else:
            assert tree is not None, text
    assert min(seen.values()) > 30
