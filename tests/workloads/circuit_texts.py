"""Draws circuits that the subset allows, in every form of writing, and damages them token by token."""

from __future__ import annotations

import re
from random import Random

BLANKS = (" ", "\n", "\t ", " // h q;\n", " /* ; } */ ", "\r\n")
WRONG = (";", ",", "[", "]", "{", "}", "(", ")", ":", "=", "->", "++", "+", "-", "*", "**", "@", "#", "$0", ".", '"01"')
WORDS = ("q", "c", "g0", "x", "gate", "measure", "reset", "let", "bit", "qubit", "if", "for", "0", "1_0", "0b1", "2.5")
TOKEN = re.compile(r"\s+|//[^\n]*\n|/\*.*?\*/|\w+|->|\+\+|\*\*|.", re.DOTALL)
ONE, TWO = ("x", "y", "z", "h", "s", "sdg", "id"), ("cx", "cy", "cz", "swap", "CX")


class CircuitText:
    """One circuit of two registers of qubits and two of bits, as text."""

    def __init__(self, chance: Random, *, is_any_gate: bool) -> None:
        self._chance, self._is_any_gate = chance, is_any_gate
        self._sizes = {"q": chance.randrange(2, 6), "r": chance.randrange(2, 6)}
        self._bits = {"c": self._sizes["q"], "d": self._sizes["r"]}
        self._defined: list[tuple[str, int, int]] = []
        self._names = 0
        self._parts: list[str] = []

    def text(self) -> str:
        chance, sizes = self._chance, self._sizes
        if chance.randrange(3):
            self._add(chance.choice(("OPENQASM 2.0", "OPENQASM 3", "OPENQASM\n3.1")))
        if chance.randrange(2):
            self._add(chance.choice(('include "qelib1.inc"', "include 'stdgates.inc'", 'include"stdgates.inc"')))
        for name, size in sizes.items():
            self._add(chance.choice((f"qreg {name}[{self._number(size)}]", f"qubit[{self._number(size)}] {name}")))
        for name, size in self._bits.items():
            self._add(chance.choice((f"creg {name}[{self._number(size)}]", f"bit[{self._number(size)}]{name}")))
        for _ in range(chance.randrange(1, 8)):
            chance.choice((self._call, self._call, self._define, self._alias, self._reset, self._measure, self._bar))()
        self._add(chance.choice(("measure q -> c", "c = measure q", "bit e = measure q[0]")))
        return "".join(self._parts)

    def _add(self, statement: str, end: str = ";") -> None:
        blank = self._chance.choice((*BLANKS, "", ""))
        self._parts.append(statement + (blank if self._chance.randrange(4) == 0 else "") + end + blank)

    def _number(self, value: int) -> str:
        forms = (str(value), hex(value), bin(value), f"0o{value:o}", f"({value})", f"{value + 3}-3", f"{value}*1")
        return self._chance.choice((str(value), *forms, f"2**0*{value}", f"{2 * value}/2", f"{value}|0", f"0{value}"))

    def _index(self, size: int) -> str:
        return self._number(at) if (at := self._chance.randrange(-size, size)) >= 0 else f"-{-at}"

    def _part(self, name: str, size: int) -> tuple[str, int]:
        """A register or some of its elements, with their number."""
        first, last = sorted(self._chance.choices(range(size), k=2))
        match self._chance.randrange(8):
            case 0:
                return name, size
            case 1:
                return f"{name}[{first}:{self._number(last)}]", last - first + 1
            case 2:
                return f"{name}[{last - size}:-1:{first}]", last - first + 1
            case 3:
                return f"{name}[:{'' if last == size - 1 else last}]", last + 1
            case 4:
                chosen = self._chance.sample(range(size), self._chance.randrange(1, size + 1))
                return f"{name}[{{{', '.join(map(str, chosen))}{self._chance.choice((',', ''))}}}]", len(chosen)
            case 5:
                return f"{name}[{first}:{last}][{self._index(last - first + 1)}]", 1
            case _:
                return f"{name}[{self._index(size)}]", 1

    def _some_part(self) -> str:
        name = self._chance.choice(("q", "r"))
        return self._part(name, self._sizes[name])[0]

    def _params(self, count: int, names: tuple[str, ...] = ()) -> str:
        forms = ("0.5", "-pi/2", "2*(pi-.5e1)", "sin(tau)", "1.", *names, "1<<2", "--1", "π", "3^2|1&~0")
        given = [self._chance.choice(forms) for _ in range(count)]
        return f"({','.join(given)})" if given else self._chance.choice(("", "()", " "))

    def _call(self) -> None:
        name, params, operands = self._gate()
        if operands == 1:
            self._add(f"{name}{self._params(params)} {self._some_part()}{self._chance.choice(('', '', ','))}")
            return
        (one, size), (other, others) = self._part("q", self._sizes["q"]), self._part("r", self._sizes["r"])
        if size != others and 1 not in (size, others):
            one = f"q[{self._index(self._sizes['q'])}]"
        self._add(f"{name}{self._params(params)} {one}, {other}")

    def _gate(self) -> tuple[str, int, int]:
        known = [(name, 0, 1) for name in ONE] + [(name, 0, 2) for name in TWO] + self._defined * 4
        return self._chance.choice(known + ([("rz", 1, 1), ("cu3", 3, 2)] if self._is_any_gate else []))

    def _define(self) -> None:
        name, params, qubits = self._name("g"), self._chance.choice(((), ("a", "θ"))), self._chance.choice(("k", "k,l"))
        body = []
        for _ in range(self._chance.randrange(4)):
            gate, count, operands = self._gate()
            if operands <= len(qubits.split(",")):
                on = self._chance.choice(qubits.split(",")) if operands == 1 else self._chance.choice(("k,l", "l, k"))
                body.append(f"{gate}{self._params(count, params)} {on};")
        body += [f"barrier {qubits};"] * self._chance.randrange(2)
        form = f"({', '.join(params)})" if params else self._chance.choice(("", "()"))
        self._add(f"gate {name}{form} {qubits} {{ {' '.join(body)} }}", end="\n")
        self._defined.append((name, len(params), len(qubits.split(","))))

    def _name(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}"

    def _alias(self) -> None:
        parts = [self._part(name, self._sizes[name])[0] for name in ("q", "r")]
        name = self._name("a")
        self._add(f"let {name} = {' ++ '.join(parts[: self._chance.randrange(1, 3)])}")
        self._add(f"{self._chance.choice(ONE)} {name}")

    def _reset(self) -> None:
        self._add(f"reset {self._some_part()}")

    def _measure(self) -> None:
        name, bits = self._chance.choice((("q", "c"), ("r", "d")))
        part = self._part(name, self._sizes[name])[0]
        into = bits + part[1:]
        self._add(self._chance.choice((f"measure {part} -> {into}", f"{into} = measure {part}", f"measure {part}")))

    def _bar(self) -> None:
        self._add(self._chance.choice(("barrier", f"barrier {self._some_part()}", f"barrier q, {self._some_part()},")))


def damaged(chance: Random, text: str) -> str:
    """The text with one token taken away, doubled, exchanged or replaced."""
    tokens = TOKEN.findall(text)
    at = chance.randrange(len(tokens))
    match chance.randrange(4):
        case 0:
            tokens[at] = ""
        case 1:
            tokens[at] *= 2
        case 2:
            other = chance.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        case _:
            tokens[at] = chance.choice((*WRONG, *WORDS))
    return "".join(tokens)
