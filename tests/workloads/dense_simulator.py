"""Circuits the slow way, as the gates are defined: all 2ⁿ amplitudes. The stabiliser simulator's oracle."""

from __future__ import annotations

from holdfast.workloads.qasm.program import Step

Matrix = tuple[tuple[complex, complex], tuple[complex, complex]]
ROOT = 2**-0.5
ONE: dict[str, Matrix] = {
    "id": ((1, 0), (0, 1)),
    "x": ((0, 1), (1, 0)),
    "y": ((0, -1j), (1j, 0)),
    "z": ((1, 0), (0, -1)),
    "h": ((ROOT, ROOT), (ROOT, -ROOT)),
    "s": ((1, 0), (0, 1j)),
    "sdg": ((1, 0), (0, -1j)),
}
CONTROLLED = {"cx": "x", "cy": "y", "cz": "z"}


class Dense:
    """Qubit i is bit i of an amplitude's number."""

    def __init__(self, qubits: int) -> None:
        self.amplitudes: list[complex] = [1, *[0] * (2**qubits - 1)]

    def gate(self, step: Step) -> None:
        name, on = step
        if name in ONE:
            self._turn(ONE[name], on[0], 0)
        elif name in CONTROLLED:
            self._turn(ONE[CONTROLLED[name]], on[1], 1 << on[0])
        else:
            for control, at in (on, on[::-1], on):
                self._turn(ONE["x"], at, 1 << control)

    def _turn(self, matrix: Matrix, at: int, where: int) -> None:
        for low in range(len(self.amplitudes)):
            high = low | 1 << at
            if low == high or low & where != where:
                continue
            a, b = self.amplitudes[low], self.amplitudes[high]
            self.amplitudes[low] = matrix[0][0] * a + matrix[0][1] * b
            self.amplitudes[high] = matrix[1][0] * a + matrix[1][1] * b

    def chance_of_one(self, at: int) -> float:
        return sum(abs(each) ** 2 for number, each in enumerate(self.amplitudes) if number >> at & 1)

    def collapse(self, at: int, outcome: int) -> None:
        chance = self.chance_of_one(at) if outcome else 1 - self.chance_of_one(at)
        for number in range(len(self.amplitudes)):
            is_kept = (number >> at & 1) == outcome
            self.amplitudes[number] = self.amplitudes[number] / chance**0.5 if is_kept else 0

    def reset(self, at: int, outcome: int) -> None:
        """The qubit had this outcome and is 0 now."""
        self.collapse(at, outcome)
        if outcome:
            self._turn(ONE["x"], at, 0)
